"""A part of `snapshots_dax.py`: the machine, records of the snapshot store, active flip records.

Nothing here can be run by itself. A chunk is a tuple of the values that a crash may leave, the
present one last. A drain makes durable what was flushed.
"""
from snapshots_dax_recovery import (OF, PAGE, PAGES, cfg, is_needed, kept_of, mut, newest_of,
                                    source, within)


class Machine:
    may = 0                                       # a snapshot that is being sealed or dropped
    undo = 0                                      # the undo snapshot of a rollback under way
    segment = 0                                   # of the thread that appends
    rolling = False
    waiting = {}                                  # flushes of a thread while another goes
    then = None

    def __init__(s):
        s.c = {}
        for i in PAGE:
            s.c[f'H{i}'] = (0,)
            s.c[f'R{i}'] = (0,)
        for p in PAGES:
            s.c['w' + p] = ((0,) * len(OF[p]),)
        s.c['r'] = ((0, 0),)                      # the region word: a bit a page
        s.c['N'] = (3,)
        s.c['T'] = (((), 0, None),)
        s.c['uh'] = s.c['ub'] = (None,)           # the place for an undo record or a redo record
        s.fl = {}
        s.medium = {}                             # the records of the store: {number: record}
        s.pend = {}                               # those that may not be durable: {number: segment}
        s.index = []                              # the records as DRAM knows them
        s.nrec = s.nundo = 0
        s.now = (0, 0, 0)
        s.snaps = {}                              # what each live snapshot has to be
        s.ever = {}                               # and each that was ever sealed
        s.allowed = None                          # contents that a crash may leave
        s.v = 1000
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
        """A session begins. No page has a generation."""
        s.boot_lanes()
        s.dram = s.cur('T')                       # the table that operations go by
        s.memo = {p: (0, frozenset()) if mut('memo_at_start') else None for p in PAGES}

    def copy(s):
        t = type(s).__new__(type(s))
        t.__dict__.update(s.__dict__)
        for k in ('c', 'fl', 'live', 'dw', 'memo', 'snaps', 'ever', 'medium', 'pend'):
            t.__dict__[k] = dict(s.__dict__[k])
        t.seq, t.index = list(s.seq), list(s.index)
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
                if k in s.waiting:
                    s.waiting[k] = max(s.waiting[k] - i, 0)
        s.fl = {}
        for key, state in s.dw.items():
            if state == 1:
                s.dw[key] = 2
        open_ = set()                             # segments with a record that may not be durable
        for n, segment in list(s.pend.items()):
            if len(s.c[f'k{n}']) > 1 or len(s.c[f'd{n}']) > 1:
                open_.add(segment)
            elif segment not in open_:
                del s.c[f'k{n}'], s.c[f'd{n}'], s.pend[n]

    def beside(s, f):
        """Steps of another thread in between. Its drains complete its own flushes only."""
        s.waiting, words = s.fl, dict(s.dw)
        s.fl = {}
        f()
        s.fl, s.waiting = s.waiting, {}
        s.dw.update((key, state) for key, state in words.items() if key in s.dw)

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

    def bytes_of(s, i):
        return s.cur(s.slot(i, s.side(i)))

    def moved(s, p, slices):
        return tuple(1 - b if i in slices else b for i, b in zip(OF[p], s.word(p)))

    # ---- records of the snapshot store -----------------------------------------------------------

    def append(s, e, p, kept, through=True, note=True):
        """A record: a header, and the bytes that it keeps."""
        n = s.nrec = s.nrec + 1
        kept = tuple(sorted(kept.items()))
        s.c[f'k{n}'] = (None, (e, p, tuple(i for i, _ in kept)))
        s.c[f'd{n}'] = (None, kept)
        s.medium[n] = (e, p, kept)
        s.pend[n] = 0 if mut('segment_shared') else s.segment
        if note:
            s.index.append((e, p, kept))
        if through:
            s.flush_record(n)
        return n

    def flush_record(s, n):
        s.fl[f'k{n}'] = s.fl[f'd{n}'] = 1

    def known(s, p):
        """The slices of a page that a record of an epoch >= L(p) has, as the page remembers it. Not
        called while L(p) is 0. A page that remembers an older epoch than L(p) has no such record:
        each record is noted there."""
        last = newest_of(s.dram, p)
        epoch = s.memo[p] and s.memo[p][0]
        if epoch is not None and epoch < last:
            trusted = mut('memo_over_seal') or mut('memo_over_roll') and last == s.undo
            s.memo[p] = last, s.memo[p][1] if trusted else frozenset()
        elif epoch is not None and epoch > last and mut('memo_over_drop'):
            s.memo[p] = last, s.memo[p][1]
        elif epoch is not None and epoch > last and mut('memo_empty_over_drop'):
            s.memo[p] = last, frozenset()
        elif epoch != last:
            s.memo[p] = last, frozenset(
                i for e, q, kept in s.index for i, _ in kept
                if q == p and (e == last if mut('keep_by_own') else e >= last))
        return s.memo[p][1]

    def to_keep(s, slices):
        """Those of the slices that an operation has to keep before it changes them."""
        todo = [i for i in slices if newest_of(s.dram, PAGE[i])
                and (i not in s.known(PAGE[i]) or mut('keep_again'))]
        if mut('keep_whole_page'):
            todo = [i for p in PAGES if any(PAGE[i] == p for i in todo)
                    for i in OF[p] if i not in s.known(p)]
        return todo

    def keep(s, slices, through=True, note=True):
        """Appends what is to be kept of these slices, as they are. The numbers of the records."""
        if mut('no_keep') or (s.rolling and mut('roll_no_keep')):
            return []
        todo = {}
        for i in s.to_keep(slices):
            p = PAGE[i]
            side = s.side(i)
            if mut('keep_free_slot'):
                side = 1 - side
            elif mut('keep_by_word'):
                side ^= s.bit(p)
            todo.setdefault(p, {})[i] = s.cur(s.slot(i, side))
        numbers = []
        for p, kept in todo.items():
            numbers.append(s.append(newest_of(s.dram, p), p, kept, through, note))
            if note:
                noted = OF[p] if mut('memo_page') else kept
                s.memo[p] = newest_of(s.dram, p), s.known(p) | frozenset(noted)
        return numbers

    def flush_records(s, numbers):
        for n in numbers:
            s.flush_record(n)

    def free(s):
        """Frees the records of which no live snapshot reads a slice, by the index: a record that is
        on the medium only does not count."""
        recs = list(s.index)
        for n, record in list(s.medium.items()):
            if n not in s.pend and not is_needed(s.cur('T'), recs, record):
                del s.medium[n]
                if record in s.index:
                    s.index.remove(record)

    def read_snapshot(s, k, length):
        out = []
        for i, p in PAGE.items():
            if not within(p, length):
                out.append(None)
                continue
            by = source(kept_of(s.index, p), i, k)
            out += by or (s.bytes_of(i) if within(p, s.cur('N')) else 0,)
        return tuple(out)

    # ---- active flip records ---------------------------------------------------------------------

    def named(s, slices):
        return [k for k, (_, of, _) in s.live.items() if set(of) & set(slices)]

    def write_back(s, named):
        """Flushes the words that records cover. True if a drain has to come before the records are
        invalidated."""
        pages = {s.live[k][2] for k in named}
        for p in pages:
            s.flush('w' + p)
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
        epochs = {e for e, _, _ in s.medium.values()}
        return canon((
            tuple((k, tuple(dict.fromkeys(v)) if k not in s.fl else (v, s.fl[k]))
                  for k, v in sorted(s.c.items()) if k[0] not in 'kdu'), undo, heads,
            s.fl.get('uh'), s.fl.get('ub'),
            tuple((s.c[f'k{n}'], s.c[f'd{n}'], segment, f'k{n}' in s.fl)
                  for n, segment in s.pend.items()),
            tuple(r for n, r in s.medium.items() if n not in s.pend), tuple(s.index), s.now,
            tuple(sorted(s.allowed or (), key=repr)), s.may, s.undo, s.then,
            tuple(sorted(s.snaps.items())), tuple(sorted((e, s.ever[e]) for e in epochs)),
            tuple(sorted(s.live.items())), tuple(sorted(s.dw.items())), tuple(s.seq),
            s.dram, tuple((memo[0], tuple(sorted(memo[1]))) if memo else None
                          for memo in s.memo.values())))
