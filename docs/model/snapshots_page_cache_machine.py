"""The machine of `snapshots_page_cache.py`: files, barriers, the store, and what slots hold.

A length counts slices, and may end in the middle of one. Of such a slice the first half counts.
"""

PAGE = {0: 'P', 1: 'P', 2: 'Q'}
OF = {'P': (0, 1), 'Q': (2,)}
PAGES = ('P', 'Q')
FILE = {'H': 'home', 'J': 'journal', 'X': 'store', 'T': 'store'}


def within(page, length):
    return OF[page][0] < length


def trim(v):
    """The first half of a slice, and zeroes behind it."""
    return v if v == 0 or type(v) is tuple else ('half', v)


def cut_to(i, v, length):
    """The bytes of slice i in a file of this length."""
    return 0 if i >= length else trim(v) if i + 1 > length else v


def is_needed(record, i, records, live):
    """A live snapshot reads slice i from this record: no older record serves it."""
    older = [r[0] for r in records if r[1] == record[1] and r[0] < record[0] and i in dict(r[2])]
    return any(max(older, default=0) < k <= record[0] for k, _ in live)


class Bad(Exception):
    pass


class Machine:
    """One machine. `c` holds, for each item, the values since the last barrier on its file. `lz`:
    items whose value a loss of power has not chosen yet. The journal begins with `places` places,
    and may grow to `most`. The table is (highest number, ((number, length), ...), intention)."""

    def __init__(s, places, most):
        s.c = {f'{x}{i}': (0,) for x in 'HR' for i in PAGE}
        for p in PAGES:
            zero = (0,) * len(OF[p])
            s.c['W' + p] = s.c['D' + p] = (zero,)
        s.c['E'] = s.c['Z'] = (None,)             # redo record, settled word
        s.c['N'] = (3,)                           # length, in slices
        s.c['S'] = (('open', 0, 3),)              # superblock: kind, session, length of its start
        s.c['T'] = ((0, (), 0),)
        for j in range(most):
            s.c[f'J{j}'] = (None,)
        s.lz = frozenset()
        s.store_ = ()                             # records that the store holds durably
        s.nx = 0
        s.choose = s.hook = None
        s.v = 1000
        s.now = s.then = s.point = (0, 0, 0)
        s.began = s.may = None
        s.also = frozenset()                      # states that may be found as well
        s.only = None                             # the state that must be found
        s.snaps = {}
        s.places = places

    def copy(s):
        t = type(s).__new__(type(s))
        t.__dict__.update(s.__dict__)
        for k in ('c', 'dur', 'snaps'):
            t.__dict__[k] = dict(s.__dict__[k])
        return t

    def more(s):
        """What a larger machine has as well, for `key_of`."""
        return ()

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
            if FILE.get(k[0], 'refl') == f and k not in s.lz:
                s.c[k] = s.c[k][-1:]
        if f == 'store':
            ready = (k for k in s.c if k[0] == 'X' and len(s.c[k]) == 1)
            for k in sorted(ready, key=lambda k: int(k[1:])):
                s.store_ += (s.c[k][0],) if s.c[k][0] is not None else ()
                del s.c[k]
            s.store_ = tuple(dict.fromkeys(s.store_))

    def is_store_dirty(s):
        return any(k[0] == 'X' or (k == 'T' and len(s.c[k]) > 1) for k in s.c)

    def put(s, records):
        """Appends to the snapshot store."""
        for r in records:
            s.nx += 1
            s.c[f'X{s.nx}'] = (None,)
            s.store(f'X{s.nx}', r)

    def records_of_store(s):
        xs = sorted((k for k in s.c if k[0] == 'X'), key=lambda k: int(k[1:]))
        found = s.store_ + tuple(v for v in map(s.cur, xs) if v is not None)
        return tuple(dict.fromkeys(found))

    # ---- state -----------------------------------------------------------------------------------

    def word(s, p):
        return s.cur('W' + p)

    def side(s, i):
        return s.word(PAGE[i])[OF[PAGE[i]].index(i)]

    def dside(s, i):
        return s.dur[PAGE[i]][OF[PAGE[i]].index(i)]

    def slot(s, i, side):
        return 'HR'[side] + str(i)

    def seen(s, words=None, length=None):
        length = s.cur('N') if length is None else length
        return tuple(cut_to(i, s.cur(s.slot(i, (words[p] if words else s.word(p))[OF[p].index(i)])),
                            length) if i < length else None for i, p in PAGE.items())
