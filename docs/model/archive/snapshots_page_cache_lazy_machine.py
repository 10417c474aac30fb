"""The machine of `snapshots_page_cache_lazy.py`: files, barriers, the store, and what slots hold."""

PAGE = {0: 'P', 1: 'P', 2: 'Q'}
OF = {'P': (0, 1), 'Q': (2,)}
PAGES = ('P', 'Q')
FILE = {'H': 'home', 'J': 'journal', 'X': 'store', 'T': 'store', 'G': 'store'}


def S(page, content):
    return ('S', page) + tuple(content)


def within(page, length):
    return OF[page][0] < length


def live_of(table):
    return [(k, n) for k, state, n in table if state == 'sealed']


def needed(table, e):
    return any(k <= e for k, _ in live_of(table))


class Bad(Exception):
    pass


class Machine:
    """One machine. `c` holds, for each item, the values since the last barrier on its file. `lz`:
    items whose value a loss of power has not chosen yet. The journal begins with `places` places,
    and may grow to `most`."""

    def __init__(s, places, most):
        s.c = {f'{x}{i}': (0,) for x in 'HR' for i in PAGE}
        for p in PAGES:
            zero = (0,) * len(OF[p])
            s.c['W' + p] = s.c['D' + p] = (zero,)
            s.c[f's{p}0'] = (S(p, zero),)
            s.c[f's{p}1'] = ('no',)
        s.c['E'] = s.c['I'] = s.c['Z'] = (None,)  # redo record, intention, settled word
        s.c['N'] = (3,)                           # length, in slices
        s.c['S'] = (('open', 0, 3),)              # superblock: kind, session, length of its start
        s.c['T'] = ((),)
        s.c['G'] = s.c['F'] = (0,)                # the store's number, and the floor of it
        s.copies = ()                             # earlier stores: (number, records, table)
        for j in range(most):
            s.c[f'J{j}'] = (None,)
        s.lz = frozenset()
        s.store_ = ()                             # what the store holds durably
        s.nx = 0
        s.choose = s.hook = None
        s.v = 1000
        s.now = s.then = s.point = (0, 0, 0)
        s.began = s.may = None
        s.also = frozenset()                      # states that an opening makes durable
        s.snaps = {}
        s.counts = False                          # the store has a number, and may be replaced
        s.places = places
        s.in_flush = s.in_close = False

    def copy(s):
        t = type(s).__new__(type(s))
        t.__dict__.update(s.__dict__)
        for k in ('c', 'dur', 'snaps', 'pd', 'vp'):
            t.__dict__[k] = dict(s.__dict__[k])
        return t

    # ---- the machine -----------------------------------------------------------------------------

    def cur(s, k):
        if k in s.lz:
            values = tuple(dict.fromkeys(s.c[k]))
            s.c[k] = (values[s.choose(len(values))],)
            s.lz -= {k}
        return s.c[k][-1]

    def store(s, k, v):
        if k in s.lz:
            s.lz -= {k}
            s.c[k] += (v,)
        elif s.c[k][-1] != v:
            s.c[k] += (v,)

    def barrier(s, f):
        """Waits: first everything may be lost that was not waited for."""
        if s.hook:
            s.hook(s)
        for k in s.c:
            if (FILE.get(k[0], 'refl') == f or (k, f) == ('F', 'floor')) and k not in s.lz:
                s.c[k] = s.c[k][-1:]
        if f == 'store':
            ready = (k for k in s.c if k[0] == 'X' and len(s.c[k]) == 1)
            for k in sorted(ready, key=lambda k: int(k[1:])):
                s.store_ += (s.c[k][0],) if s.c[k][0] is not None else ()
                del s.c[k]
            s.store_ = tuple(dict.fromkeys(r for r in s.store_ if needed(s.table, r[0])))

    def put(s, records):
        """Appends to the snapshot store."""
        for r in records:
            s.nx += 1
            s.c[f'X{s.nx}'] = (None,)
            s.store(f'X{s.nx}', r)
            s.count()

    def count(s):
        """The store has one more entry. (Its number is left out where no store is replaced.)"""
        if s.counts:
            s.store('G', s.cur('G') + 1)

    def put_table(s, table):
        if s.cur('T') != table:
            s.store('T', table)
            s.count()

    def copy_store(s):
        """Somebody copies the store, now."""
        xs = sorted(k for k in s.c if k[0] == 'X')
        records = s.store_ + tuple(s.c[k][-1] for k in xs if s.c[k][-1] is not None)
        s.copies = tuple(dict.fromkeys(s.copies + ((s.c['G'][-1], records, s.c['T'][-1]),)))

    def take_copy(s, copy):
        s.c = {k: v for k, v in s.c.items() if k[0] != 'X'}
        s.c['G'], s.store_, s.c['T'] = (copy[0],), copy[1], (copy[2],)

    # ---- state -----------------------------------------------------------------------------------

    def word(s, p):
        return s.cur('W' + p)

    def side(s, i):
        return s.word(PAGE[i])[OF[PAGE[i]].index(i)]

    def dside(s, i):
        return s.dur[PAGE[i]][OF[PAGE[i]].index(i)]

    def slot(s, i, side):
        return 'HR'[side] + str(i)

    def content(s, p, words, length):
        """What a page holds. Past the length it reads as zero."""
        return tuple(s.cur(s.slot(i, b)) if i < length else 0 for i, b in zip(OF[p], words))

    def seen(s, words=None, length=None):
        length = s.cur('N') if length is None else length
        return tuple(s.cur(s.slot(i, (words[p] if words else s.word(p))[OF[p].index(i)]))
                     if i < length else None for i, p in PAGE.items())
