"""The machine of `snapshot_store.py`: the store's cells, the process's DRAM, and the operations.

Geometry: page 0 has two slices and page 1 has one. The store has at most four segments of a header
and six lines (one script has seven), and two copies of a table of two lines. `RULES` holds the
mutant that runs.

Run it by `snapshot_store.py`.
"""
from types import SimpleNamespace

SLICES = (2, 1)                                   # of each page
SEGMENTS = 4
RULES = SimpleNamespace(mutant='none', lines=7)    # lines of a segment with its header


class NoSpace(Exception):
    """The disk is full."""


class Damage(Exception):
    """An opening finds no table, or records that cannot be."""


def walk(c, seg):
    """Yields the whole records of a segment: (place, epoch, page, bytes). A line has no tag: kept
    bytes that look like a record are one, if the walk comes to them."""
    head = c.get(('G', seg, 0), (None,))[-1]
    if not head:
        return
    i = 1
    while i < RULES.lines:
        line = c.get(('G', seg, i), (None,))[-1]
        if type(line) is not tuple or line[0] != 'rec':
            if RULES.mutant == 'torn_is_skipped':
                i += 1
                continue
            return
        _, seed, e, p, kept = line
        got = tuple(c.get(('G', seg, i + 1 + n), (None,))[-1] for n in range(len(kept)))
        if seed != head[1] and RULES.mutant != 'seed_unchecked':
            return
        if RULES.mutant != 'bytes_unchecked' and any(b != v for b, (_, v) in zip(got, kept)):
            return
        yield i, e, p, tuple((s, b) for b, (s, _) in zip(got, kept))
        i += 1 + len(kept)


class Sim:
    """One machine: cells, the DRAM of the process, and what must be found."""

    def __init__(s):
        s.c = {('W', p): [(0,) * n] for p, n in enumerate(SLICES)}
        for p, n in enumerate(SLICES):
            for i in range(n):
                s.c['S', p, i, 0], s.c['S', p, i, 1] = [0], [None]
        for line in (0, 1):
            s.c['T', 0, line] = [((1, 0, 1, (), 0), line)]
        s.alloc, s.full, s.foreign, s.undo = frozenset({0}), False, frozenset(), None
        s.snaps, s.value = {}, 0
        s.believe((1, 0, 1, (), 0), 0)
        s.ok_present, s.ok_live = {s.present()}, {()}

    def copy(s):
        t = Sim.__new__(Sim)
        t.__dict__.update(s.__dict__)
        t.c, t.index, t.snaps = dict(s.c), dict(s.index), dict(s.snaps)
        return t

    # ---- cells -----------------------------------------------------------------------------------

    def cur(s, k):
        return s.c[k][-1] if k in s.c else None

    def store(s, k, v):
        s.c[k] = [*s.c.get(k, [None]), v]
        s.foreign -= {k}

    def drain(s):
        """Makes durable what this process has stored."""
        for k, v in s.c.items():
            if len(v) > 1 and k not in s.foreign:
                s.c[k] = v[-1:]

    def renew(s, kinds):
        """Flushes again what an earlier process has stored and an opening has found."""
        s.foreign = frozenset(k for k in s.foreign if k[0] not in kinds)
        s.drain()

    def present(s):
        return tuple(tuple(s.cur(('S', p, i, w)) for i, w in enumerate(s.cur(('W', p)))) for p in
                     range(len(SLICES)))

    def settled(s):
        """After an opening that has been seen, its state is the one to be found."""
        s.ok_present, s.ok_live, s.undo = {s.present()}, {s.live}, None

    # ---- the definition of a snapshot ------------------------------------------------------------
    # The index: (page, slice, epoch) -> (bytes, segment, place of the record).

    def where(s, k, p, i):
        """The epoch of the record that has slice i of snapshot k, or None: its valid slot has it.
        """
        return min((e for q, j, e in s.index if (q, j) == (p, i) and e >= k), default=None)

    def read(s, k):
        def one(p, i):
            e = s.where(k, p, i)
            if e is not None:
                return s.index[p, i, e][0]
            return s.cur(('S', p, i, s.cur(('W', p))[i]))
        return tuple(tuple(one(p, i) for i in range(n)) for p, n in enumerate(SLICES))

    def is_needed(s, key, live=None):
        """A live snapshot k has e' < k <= e, where e' is the next older record of the slice."""
        p, i, e = key
        live = s.live if live is None else live
        if RULES.mutant == 'needed_by_epoch':
            return e in live
        older = [f for q, j, f in s.index if q == p and f < e
                 and (j == i or RULES.mutant == 'needed_by_page')]
        if RULES.mutant == 'dead_records_count':
            older = []
        if RULES.mutant == 'needed_not_own':
            return any(max(older, default=0) < k < e for k in live)
        return any(max(older, default=0) < k <= e for k in live)

    # ---- table -----------------------------------------------------------------------------------

    def believe(s, table, copy):
        """What DRAM knows after an opening, but for the records."""
        s.gen, s.last, s.opens, s.live, s.intent = table
        s.at_copy, s.at, s.next, s.use, s.index, s.noted = copy, None, (), 0, {}, None
        s.compacted = set(), set()                # segments, and what was copied

    @property
    def newest(s):
        return max(s.live, default=0)

    def table(s, **kw):
        """Writes the next table over the copy that does not count."""
        now = {'last': s.last, 'opens': s.opens, 'live': s.live, 'intent': s.intent, **kw}
        s.gen += 1
        content = (s.gen, now['last'], now['opens'], now['live'], now['intent'])
        to = s.at_copy if RULES.mutant == 'table_in_place' else 1 - s.at_copy
        for line in (0, 1):
            s.store(('T', to, line), (content, line)); yield
        s.at_copy = to
        if not (RULES.mutant == 'seal_undrained' and 'last' in kw) and not (
                RULES.mutant == 'drop_undrained' and 'last' not in kw and 'live' in kw):
            s.drain()
        for k, v in now.items():
            setattr(s, k, v)

    def find_table(s):
        found = []
        for copy in (0, 1):
            lines = [s.cur(('T', copy, line)) for line in (0, 1)]
            if all(lines) and lines[0][0] == lines[1][0]:
                found.append((lines[0][0], copy))
            elif all(lines) and RULES.mutant == 'table_no_checksum':
                found.append((lines[0][0][:3] + lines[1][0][3:], copy))
        if not found:
            raise Damage('no table')
        return max(found)

    # ---- space -----------------------------------------------------------------------------------

    def needed_keys(s):
        return [k for k in s.index if s.is_needed(k)]

    def in_use(s):
        used = {s.index[k][1] for k in s.needed_keys()}
        if RULES.mutant == 'drop_frees_nothing':
            used = {x[1] for x in s.index.values()}
        return used | ({s.at[0]} if s.at else set()) | set(s.next)

    def free(s):
        return [g for g in sorted(s.alloc) if g not in s.in_use()]

    def reserve(s, records):
        """Room for records of so many lines each, before the first store: whole segments."""
        if RULES.mutant == 'reserve_late':
            return
        s.really_reserve(records)

    def really_reserve(s, records):
        i, more = (s.at[1] if s.at else RULES.lines), 0
        for n in records:
            if i + n > RULES.lines:
                more, i = more + 1, 1
            i += n
        while len(s.next) < more:
            free = s.free()
            if free:
                s.next += (free[0],)
            elif s.full or len(s.alloc) == SEGMENTS:
                s.next = ()
                raise NoSpace
            else:
                s.alloc |= {min(set(range(SEGMENTS)) - s.alloc)}

    def begin_segment(s):
        """The next segment, with its header. What it had goes from the index."""
        s.at, s.next = (s.next[0], 1), s.next[1:]
        s.use += 1
        g = s.at[0]
        s.index = {k: v for k, v in s.index.items() if v[1] != g}
        seed = (s.opens, s.use)
        if RULES.mutant == 'seed_of_opening':
            seed = (s.opens, 0)
        s.store(('G', g, 0), ('seg', seed))

    def append(s, p, e, kept):
        """Stores a record; the caller drains."""
        if RULES.mutant == 'reserve_late':
            s.really_reserve([1 + len(kept)])
        if s.at is None or s.at[1] + 1 + len(kept) > RULES.lines:
            s.begin_segment()
        seg, i = s.at
        seed = s.cur(('G', seg, 0))[1]
        for n, (_, v) in enumerate(kept):
            s.store(('G', seg, i + 1 + n), v)
        s.store(('G', seg, i), ('rec', seed, e, p, tuple(kept))); yield
        s.at = (seg, i + 1 + len(kept))
        for j, v in kept:
            s.index[p, j, e] = (v, seg, i)

    # ---- operations: generators that yield where a crash may come --------------------------------

    def fresh(s):
        s.value += 1
        return s.value

    def to_keep(s, p, slices):
        """K2: the slices of an operation that no record of an epoch >= L has."""
        if not s.newest:
            return []
        have = {j for q, j, e in s.index if q == p and e >= s.newest}
        if RULES.mutant == 'keep_once':
            have = {j for q, j, e in s.index if q == p}
        valid = s.cur(('W', p))
        return [(i, s.cur(('S', p, i, valid[i]))) for i in sorted(slices) if i not in have]

    def may_be(s, p, new):
        before = s.present()
        after = tuple(tuple(new.get(i, x) for i, x in enumerate(page)) if q == p else page
                      for q, page in enumerate(before))
        if not s.intent:
            s.ok_present = s.ok_present | {after}
        return after

    def write(s, p, values):
        """A flip: keep and data in the first drain, then the word."""
        word, new = s.cur(('W', p)), dict(values)
        kept = s.to_keep(p, new)
        s.reserve([1 + len(kept)] if kept else [])
        late = RULES.mutant == 'keep_late'
        if kept and not late:
            yield from s.append(p, s.newest, kept)
        for i, x in new.items():
            s.store(('S', p, i, 1 - word[i]), x)
        yield
        s.drain(); yield
        after = s.may_be(p, new)
        s.store(('W', p), tuple(1 - w if i in new else w for i, w in enumerate(word)))
        if kept and late:
            yield from s.append(p, s.newest, kept)
        yield
        s.drain()
        if s.intent == 0:
            s.ok_present = {after}
        yield

    def direct(s, p, i):
        """A store over the valid slot, as the last step of a redo: the keep is drained before."""
        new = {i: s.fresh()}
        kept = s.to_keep(p, new)
        s.reserve([2] if kept else [])
        if kept:
            yield from s.append(p, s.newest, kept)
        if kept and RULES.mutant != 'keep_no_drain':
            s.drain(); yield
        after = s.may_be(p, new)
        s.store(('S', p, i, s.cur(('W', p))[i]), new[i]); yield
        s.drain()
        s.ok_present = {after}; yield

    def fail(s):
        """An operation on both pages that keeps and then fails: its keeps are facts."""
        kept = [(p, s.to_keep(p, range(SLICES[p]))) for p in (1, 0)]
        kept = [(p, x) for p, x in kept if x]
        s.reserve([1 + len(x) for _, x in kept])
        for p, x in kept:
            yield from s.append(p, s.newest, x)
        s.drain(); yield

    def w(s, p, *slices):
        yield from s.write(p, {i: s.fresh() for i in slices})

    def forge(s):
        """The user writes bytes that look like a record of page 1: a copy of the store, say."""
        seed = s.cur(('G', s.at[0], 0))[1] if s.at else (s.opens, 1)
        false = ('rec', seed, s.last + 2, 1, ((0, 'false'),))
        yield from s.write(0, {0: false, 1: 'false'})

    def seal(s):
        number = (s.newest if RULES.mutant == 'number_by_live' else s.last) + 1
        s.snaps[number] = s.present()
        live = s.live + (number,)
        s.ok_live = s.ok_live | {live}
        yield from s.table(last=number, live=live)
        s.ok_live = {live}
        yield

    def drop(s, at):
        if len(s.live) <= at:
            return
        live = s.live[:at] + s.live[at + 1:]
        s.ok_live = s.ok_live | {live}
        if RULES.mutant == 'drop_needs_room':
            s.reserve([RULES.lines - 1])
        if RULES.mutant == 'punch_undrained':
            keep, s.live = s.live, live
            yield from s.punch()
            s.live = keep
        if RULES.mutant == 'highest_is_newest':
            yield from s.table(live=live, last=max(live, default=0))
        else:
            yield from s.table(live=live)
        s.ok_live = {live}
        yield

    def is_space_lost(s, is_compacted):
        """A segment without a slice that a snapshot reads is not free, or compaction has left one,
        or copied a slice that no snapshot reads."""
        if RULES.mutant == 'dead_records_count':
            return False
        read = {(p, i, s.where(k, p, i)) for k in s.live for p, n in enumerate(SLICES)
                for i in range(n)} & set(s.index)
        busy = {s.index[k][1] for k in read} | ({s.at[0]} if s.at else set()) | set(s.next)
        lost = set(s.free()) != set(s.alloc) - busy
        sources, copied = s.compacted
        return lost or (is_compacted and (bool(busy & sources) or not copied <= read))

    def wasteful(s, every=False):
        """Segments other than the one in use that hold needed slices and others: (segment, keys).
        """
        needed = s.needed_keys()
        out = []
        for g in sorted(s.alloc - ({s.at[0]} if s.at else set()) - set(s.next)):
            here = [k for k in needed if s.index[k][1] == g]
            lines = sum(len(kept) for _, _, _, kept in walk(s.c, g))
            if here and (len(here) < lines or every):
                out.append((g, here))
        return out

    def compact(s, every=False):
        """Needed slices of segments with others are said again elsewhere, and drained."""
        s.compacted, todo, s.noted = (set(), set()), {}, None
        found = s.wasteful(every)
        for g, here in found:
            for p, i, e in s.index if RULES.mutant == 'compact_all' else here:
                if s.index[p, i, e][1] == g:
                    todo.setdefault((p, e), set()).add(i)
        if RULES.mutant == 'compact_by_epoch':
            todo = {x: y for x, y in todo.items() if x[1] in s.live}
        try:
            s.reserve([1 + len(x) for _, x in sorted(todo.items())])
        except NoSpace:
            return                                # nothing has happened
        sources = {g for g, _ in found}
        if RULES.mutant == 'compact_frees_first':
            for g in sources:
                for i in range(RULES.lines):
                    if ('G', g, i) in s.c:
                        s.store(('G', g, i), None)
            yield
        for (p, e), some in sorted(todo.items()):
            kept = [(i, s.index[p, i, e][0]) for i in sorted(some)]
            yield from s.append(p, e, kept)
        if RULES.mutant != 'compact_undrained':
            s.drain(); yield
        if RULES.mutant == 'compact_by_epoch':
            s.index = {k: v for k, v in s.index.items() if v[1] not in sources}
        s.compacted = sources, {(p, i, e) for (p, e), some in todo.items() for i in some}

    def note(s):
        """A collection in steps begins: it goes by the snapshots and the closed segments of now."""
        busy = ({s.at[0]} if s.at else set()) | set(s.next)
        s.noted = s.live, s.last, s.alloc - busy
        yield

    def collect(s):
        """It ends, after whatever has come in between, and frees what it found not to be needed."""
        if not s.noted:
            return
        (live, last, closed), s.noted = s.noted, None
        is_later = lambda k: k[2] > last and RULES.mutant != 'later_by_old_set'
        s.index = {k: v for k, v in s.index.items() if is_later(k) or s.is_needed(k, live)}
        busy = {g for _, g, _ in s.index.values()} | ({s.at[0]} if s.at else set()) | set(s.next)
        for g in closed & s.alloc - busy:
            for i in range(RULES.lines):
                if ('G', g, i) in s.c:
                    s.store(('G', g, i), None)
        yield

    def punch(s):
        s.noted = None
        for g in s.free():
            for i in range(RULES.lines):
                if ('G', g, i) in s.c:
                    s.store(('G', g, i), None)
            s.alloc -= {g} if len(s.alloc) > 1 else set()
        yield

    def roll(s):
        """Back to the oldest snapshot; the present is sealed with the intention."""
        if not s.live or s.intent:
            return
        k, number = s.live[0], s.last + 1
        if s.present() == s.snaps[k]:
            return
        s.reserve([1 + n for n in SLICES])        # for all that the pages may append
        s.snaps[number] = s.present()
        live = s.live + (number,)
        s.ok_present, s.ok_live = s.ok_present | {s.snaps[k]}, s.ok_live | {live}
        s.undo = s.present(), number
        if RULES.mutant == 'intention_late':
            s.intent = k
            p = next(p for p, page in enumerate(s.present()) if page != s.snaps[k][p])
            yield from s.write(p, {i: x for i, x in enumerate(s.snaps[k][p]) if x !=
                                   s.present()[p][i]})
        if RULES.mutant == 'undo_not_with_intention':
            yield from s.table(intent=k); yield
            yield from s.table(last=number, live=live)
        else:
            yield from s.table(last=number, live=live, intent=k)
        s.ok_present, s.ok_live = {s.snaps[k]}, {live}
        yield
        yield from s.roll_on()
        s.undo = None

    def roll_on(s):
        k = s.intent
        if RULES.mutant == 'intention_cleared_early':
            yield from s.table(intent=0)
            s.intent = k; yield
        for p in range(len(SLICES)):
            want, have = s.read(k)[p], s.present()[p]
            change = {i: x for i, x in enumerate(want) if x != have[i]}
            if change:
                yield from s.write(p, change)
        s.ok_present, s.ok_live = {s.present()}, {s.live}
        yield from s.table(intent=0)
        yield

    def fill_disk(s):
        s.full = not s.full
        yield

    # ---- opening ---------------------------------------------------------------------------------

    def open(s):
        table, copy = s.find_table()
        s.believe(table, copy)
        s.foreign = frozenset(k for k, v in s.c.items() if len(v) > 1)
        s.renew({'table_not_renewed': 'GSW', 'records_not_renewed': 'TSW'}.get(RULES.mutant,
                                                                              'TGSW')); yield
        s.read_records()
        if RULES.mutant == 'opening_needs_room':
            s.reserve([RULES.lines - 1])
        if RULES.mutant == 'seed_not_durable':
            s.opens += 1
        else:
            yield from s.table(opens=s.opens + 1); yield
        if RULES.mutant == 'old_segment':
            s.go_on_in_old_segment()
        if s.intent and RULES.mutant != 'roll_not_gone_on':
            yield from s.roll_on()

    def read_records(s):
        """The index, from the whole records. Of several copies of a slice any one counts."""
        for g in sorted(s.alloc, reverse=RULES.mutant == 'other_copy'):
            for place, e, p, kept in walk(s.c, g):
                if e > s.last:
                    raise Damage(f'a record of {e}, which was never sealed')
                for i, v in kept:
                    found = s.index.setdefault((p, i, e), (v, g, place))
                    if found[0] != v:
                        raise Damage('two records of one slice and epoch differ')

    def go_on_in_old_segment(s):
        for g in sorted(s.alloc):
            last = 1
            for i, _, _, kept in walk(s.c, g):
                last = i + 1 + len(kept)
            if 1 < last < RULES.lines:
                s.at = (g, last)
