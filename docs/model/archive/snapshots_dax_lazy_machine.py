"""A part of `snapshots_dax_lazy.py`: the machine, records of the snapshot store, active flip records.

Nothing here can be run by itself. A chunk is a tuple of the values that a crash may leave, the
present one last. A drain makes durable what was flushed.
"""
from snapshots_dax_lazy_recovery import (OF, PAGE, PAGES, S, cfg, chain, live_of, mut,
                                    newest_of, source, within)


class Machine:
    early = ()                                    # slices that were kept early by this operation
    may = None                                    # a snapshot that is being sealed or dropped

    def __init__(s):
        s.c = {}
        for i in PAGE:
            s.c[f'H{i}'] = (0,)
            s.c[f'R{i}'] = (0,)
        for p in PAGES:
            s.c['w' + p] = ((0,) * len(OF[p]),)
            s.c[f's{p}0'] = (S(p, (0,) * len(OF[p])),)
            s.c[f's{p}1'] = ('no',)
        s.c['r'] = ((0, 0),)                      # the region word: a bit a page
        s.c['N'] = (3,)
        s.c['T'] = ((),)
        s.c['I'] = (None,)
        s.c['uh'] = s.c['ub'] = (None,)           # the place for an undo record or a redo record
        s.fl = {}
        s.recs = []                               # as DRAM knows them
        s.pend = []                               # numbers of those that may not be durable
        s.nrec = s.nundo = 0
        s.now = (0, 0, 0)
        s.snaps = {}
        s.allowed = None                          # contents that a crash may leave
        s.v = 1000
        s.prev = {p: frozenset() for p in PAGES}  # what a page held before its last change
        s.boot()

    def boot_lanes(s):
        for t in range(cfg.lanes):
            for e in range(cfg.ring):
                s.c[f'h{t}{e}'] = (None,)
                s.c[f'b{t}{e}'] = (None,)
        s.seq = [0] * cfg.lanes
        s.live = {}                               # (lane, place) -> (number, slices, page)
        s.dw = {}                                 # (lane, place) -> 0 no, 1 flushed, 2 durable

    def boot(s):
        s.boot_lanes()
        s.place = {p: 0 for p in PAGES}           # where the sum is that counts
        s.other = {p: frozenset() for p in PAGES}     # `owed`: the other slot is read
        s.valid = {p: frozenset() for p in PAGES}     # `needed`: the valid slot is read
        s.epoch = {p: 0 for p in PAGES}

    def copy(s):
        t = type(s).__new__(type(s))
        t.__dict__.update(s.__dict__)
        for k in ('c', 'fl', 'live', 'dw', 'place', 'other', 'valid', 'epoch', 'snaps', 'prev'):
            t.__dict__[k] = dict(s.__dict__[k])
        t.seq, t.recs, t.pend = list(s.seq), list(s.recs), list(s.pend)
        return t

    # ---- the machine -----------------------------------------------------------------------------

    def cur(s, k):
        return s.c[k][-1]

    def store(s, k, v):
        if s.c[k][-1] != v:
            s.c[k] += (v,)

    def flush(s, k):
        s.fl[k] = len(s.c[k]) - 1

    def through(s, k, v):
        s.store(k, v)
        s.flush(k)

    def drain(s):
        s.check(s)
        for k, i in s.fl.items():
            if i > 0 and k in s.c:
                s.c[k] = s.c[k][i:]
        s.fl = {}
        for key, state in s.dw.items():
            if state == 1:
                s.dw[key] = 2
        for n in list(s.pend):
            if len(s.c[f'k{n}']) == 1 and len(s.c.get(f'd{n}', (0,))) == 1:
                del s.c[f'k{n}']
                s.c.pop(f'd{n}', None)
                s.pend.remove(n)

    # ---- state -----------------------------------------------------------------------------------

    def word(s, p):
        return s.cur('w' + p)

    def bit(s, p):
        return s.cur('r')[PAGES.index(p)]

    def validity(s, p):
        return tuple(b ^ s.bit(p) for b in s.word(p))

    def side(s, i):
        return s.validity(PAGE[i])[OF[PAGE[i]].index(i)]

    def slot(s, i, side):
        return 'HR'[side] + str(i)

    def moved(s, p, slices):
        return tuple(1 - b if i in slices else b for i, b in zip(OF[p], s.word(p)))

    def content(s, p, state=None):
        state = s.now if state is None else state
        return tuple(state[i] for i in OF[p])

    def table(s):
        return s.cur('T')

    def newest(s, p):
        return newest_of(s.table(), p)

    def bases(s, p):
        return chain(s.recs, p, s.cur('r'))

    def new_sum(s, p, content):
        """The place and the sum of a page's next state."""
        at = s.place[p] if mut('sum_one_place') else 1 - s.place[p]
        if mut('sum_of_slice'):
            content = content[:-1] + (s.content(p)[-1],)
        return f's{p}{at}', S(p, content)

    # ---- records of the snapshot store -----------------------------------------------------------

    def put(s, e, pages, words, sums, kept, through=True):
        """Appends a record. Its second chunk holds what is longer than a line: kept bytes, or the
        sums of a run of pages."""
        n = s.nrec = s.nrec + 1
        kept = tuple(sorted(kept.items()))
        is_run = len(pages) > 1
        head = (e, pages, words, None if is_run else sums, tuple(i for i, _ in kept))
        s.c[f'k{n}'] = (None, head)
        s.pend.append(n)
        if kept or is_run:
            s.c[f'd{n}'] = (None, sums if is_run else kept)
        if through:
            s.fl[f'k{n}'] = 1
            if kept or is_run:
                s.fl[f'd{n}'] = 1
        s.recs.append((e, pages, words, sums, kept))
        return n

    def append(s, e, p, validity, sum_, kept, through=True):
        if mut('base_slice_word'):
            validity = tuple(b ^ s.bit(p) for b in validity)
        return s.put(e, (p,), (validity,), (sum_,), kept, through)

    def open_page(s, p):
        """A page is about to change. True if it has no base for the newest snapshot that has it."""
        last = s.newest(p)
        if last == 0:
            return False
        if s.epoch[p] < last:
            s.epoch[p] = last
            s.valid[p] = frozenset(OF[p])
            if mut('roll_forgets'):
                s.other[p] = frozenset()
        return not s.has_base(p) and not mut('no_base')

    def has_base(s, p):
        return any(b[0] >= s.newest(p) for b in s.bases(p))

    def base_sum(s, p):
        return S(p, s.content(p, s.then if mut('base_no_sum') else None))

    def base(s, p, through=True):
        return s.append(s.newest(p), p, s.validity(p), s.base_sum(p), {}, through)

    def base_run(s, new, pages):
        """Whole pages of a region: one record for those that lie on one side, if there are more."""
        of = pages if mut('run_over_base') and new else new
        uniform = [p for p in of if len(set(s.validity(p))) == 1 or mut('run_mixed')]
        sides = {s.validity(p)[0] for p in uniform}
        epochs = {s.newest(p) for p in uniform}
        if len(uniform) > 1 and len(epochs) == 1 and (len(sides) == 1 or mut('run_sides')):
            sums = tuple(s.base_sum(p) for p in uniform)
            s.put(max(epochs), tuple(uniform), min(sides), sums, {})
            new = [p for p in new if p not in uniform]
        return [s.base(p) for p in new]

    def keep(s, over):
        """Before stores over slots: [(slice, side)]. True if the store has a new record, which is
        to be drained before them."""
        todo = {}
        for i, side in over:
            p = PAGE[i]
            at_valid = side == s.side(i)
            if i not in (s.valid if at_valid else s.other)[p]:
                continue
            if mut('no_keep') or (mut('keep_by_name') and at_valid):
                continue
            bases = s.bases(p)
            for k, n in live_of(s.table()):
                if not within(p, n):
                    continue
                what, where, e = source(bases, s.validity(p), k, i)
                if what == 'slot' and where == side:
                    if e is None:
                        e = next((b[0] for b in bases if b[0] >= s.newest(p)), s.newest(p))
                    if mut('keep_by_own') and (e, n) not in live_of(s.table()):
                        continue
                    slot = s.slot(i, s.side(i) if mut('kept_early') else side)
                    todo.setdefault((e, p), {})[i] = s.cur(slot)
            if at_valid:
                s.valid[p] -= {i}
            else:
                s.other[p] -= {i}
        for (e, p), kept in todo.items():
            b = next((b for b in s.bases(p) if b[0] == e), None)
            if b:
                s.append(e, p, b[1], b[3], kept)
            else:
                s.append(e, p, s.validity(p), S(p, s.content(p)), kept)
        return bool(todo)

    def keep_now(s, slices):
        """A variant: what an operation makes owed is kept with its own first drain."""
        s.early = []
        if not cfg.eager:
            return
        for i in slices:
            p = PAGE[i]
            b = next((b for b in s.bases(p) if b[0] >= s.newest(p) > 0), None)
            if i in s.valid[p] and b and (cfg.eager != 'some' or i != 1):
                s.append(b[0], p, b[1], b[3], {i: s.cur(s.slot(i, s.side(i)))})
                s.early.append(i)

    def handed(s, p, slices):
        """Slices of a page have flipped: what was valid is the other slot now."""
        m = frozenset(slices)
        other = (s.other[p] - m) | (s.valid[p] & m)
        s.other[p] = (s.other[p] - m) if mut('mask_not_handed') else other
        s.valid[p] -= m
        s.other[p] -= frozenset(s.early)

    def first(s, pages, over, more=False):
        """Before an operation's stores. `more`: a drain is due anyway. The pages without a base."""
        new = [p for p in pages if s.open_page(p)]
        if (s.keep(over) or more) and not mut('keep_undrained'):
            s.drain()
        return [p for p in new if not s.has_base(p)]

    # ---- active flip records ---------------------------------------------------------------------

    def named(s, slices):
        return [k for k, (_, of, _) in s.live.items() if set(of) & set(slices)]

    def flush_page(s, p, sums=True):
        s.flush('w' + p)
        if sums:
            s.flush(f's{p}0')
            s.flush(f's{p}1')

    def write_back(s, named):
        """Flushes the words that records cover. True if a drain has to come before the records are
        invalidated."""
        pages = {s.live[k][2] for k in named}
        for p in pages:
            s.flush_page(p, not mut('sum_not_settled'))
        for key, (_, _, p) in s.live.items():
            if p in pages:
                s.dw[key] = 1
        return bool(pages)

    def invalidate(s, keys):
        for t, e in keys:
            s.through(f'h{t}{e}', ('void',) + s.cur(f'h{t}{e}')[1:])
            del s.live[(t, e)]

    def key(s):
        """Everything, with values renamed."""
        names = {}

        def canon(x):
            if type(x) is int:
                return x if x < 1000 else names.setdefault(x, 1000 + len(names))
            if type(x) is tuple:
                return tuple(canon(y) for y in x)
            return x
        first_undo = s.nundo - 1
        undo = tuple((v[0] - first_undo, v[1]) if type(v) is tuple else v for v in s.c['ub'])
        heads = tuple(v - first_undo if type(v) is int else v for v in s.c['uh'])
        return canon((
            tuple((k, tuple(dict.fromkeys(v)) if k not in s.fl else (v, s.fl[k]))
                  for k, v in sorted(s.c.items()) if k[0] not in 'kdu'), undo, heads,
            s.fl.get('uh'), s.fl.get('ub'),
            tuple((s.c[f'k{n}'], s.c.get(f'd{n}')) for n in s.pend), tuple(s.recs), s.now,
            tuple(sorted(s.allowed or (), key=repr)), s.may,
            tuple(sorted(s.snaps.items())), tuple(sorted(s.live.items())),
            tuple(sorted(s.dw.items())), tuple(s.seq), tuple(s.place.values()),
            tuple(tuple(sorted(x)) for x in s.other.values()),
            tuple(tuple(sorted(x)) for x in s.valid.values()), tuple(s.epoch.values())))
