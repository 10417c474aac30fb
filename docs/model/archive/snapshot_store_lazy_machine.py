"""The machine of `snapshot_store_lazy.py`: the store's cells, the process's DRAM, and the operations.

Geometry: page 0 has two slices and page 1 has one. The store has at most four segments of a header
and four lines, and two copies of a table of two lines. `RULES` holds the mutant that runs, and the
policy of keeping early.

Run it by `snapshot_store_lazy.py`.
"""
from types import SimpleNamespace

SLICES = (2, 1)                                   # of each page
SEGMENTS, LINES = 4, 5
RULES = SimpleNamespace(mutant='none', early=False)


class NoSpace(Exception):
    """The disk is full."""


class Damage(Exception):
    """An opening finds no table, or records that contradict each other."""


def walk(c, seg):
    """Yields the records of a segment that are whole: (place, seed, record, bytes)."""
    head = c.get(('G', seg, 0), (None,))[-1]
    if not head:
        return
    i = 1
    while i < LINES:
        line = c.get(('G', seg, i), (None,))[-1]
        if not line or line[0] != 'rec':
            return
        seed, rec = line[1], line[2]
        kept = rec[5]
        got = tuple(c.get(('G', seg, i + 1 + n), (None,))[-1] for n in range(len(kept)))
        if seed != head[1] and RULES.mutant != 'header_unchecked':
            return
        if RULES.mutant != 'bytes_unchecked' and any(b != ('byt', v) for b, (_, v) in
                                                     zip(got, kept)):
            return
        yield i, rec, tuple((s, b[1] if b and b[0] == 'byt' else None) for b, (s, _) in
                            zip(got, kept))
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
        s.c['N',] = [1]                           # the session, which is in the superblock
        s.alloc, s.full, s.foreign, s.undo = frozenset({0}), False, frozenset(), None
        s.snaps, s.value = {}, 0
        s.believe((1, 0, 1, (), 0), 0)
        s.ok_present, s.ok_live = {s.present()}, {()}

    def copy(s):
        t = Sim.__new__(Sim)
        t.__dict__.update(s.__dict__)
        t.c = dict(s.c)
        t.index, t.snaps = dict(s.index), dict(s.snaps)
        t.owed, t.needed, t.epoch = dict(s.owed), dict(s.needed), dict(s.epoch)
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

    def bases(s, p):
        return sorted((e, r) for (q, e), r in s.index.items() if q == p)

    def where(s, k, p, i):
        """Where slice `i` of snapshot `k` is: kept (epoch), in a slot (side, epoch), or valid."""
        bases = [(e, r) for e, r in s.bases(p) if e >= k]
        for n, (e, r) in enumerate(bases):
            if i in dict(r[3]):
                return 'kept', e
            after = bases[n + 1][1][1] if n + 1 < len(bases) else s.cur(('W', p))
            if r[1][i] != after[i]:
                return 'slot', r[1][i], e
        return 'valid', s.cur(('W', p))[i]

    def read(s, k):
        out = []
        for p, n in enumerate(SLICES):
            got = []
            for i in range(n):
                at = s.where(k, p, i)
                got.append(dict(s.index[p, at[1]][3])[i] if at[0] == 'kept' else
                           s.cur(('S', p, i, at[1])))
            out.append(tuple(got))
            sums = [r[2] for e, r in s.bases(p) if e >= k]
            if sums and sums[0] != out[-1]:
                return ('sum', k, p, sums[0], out[-1])
        return tuple(out)

    # ---- table -----------------------------------------------------------------------------------

    def believe(s, table, copy):
        """What DRAM knows after an opening, but for the records."""
        s.gen, s.last, s.opens, s.live, s.intent = table
        s.at_copy, s.at, s.next, s.use = copy, None, (), 0
        s.index, s.owed, s.needed, s.epoch = {}, {}, {}, {}
        s.reset_masks()

    def reset_masks(s):
        for p, n in enumerate(SLICES):
            s.owed[p] = s.needed[p] = frozenset()
            s.epoch[p] = max([e for e, _ in s.bases(p)], default=0)
            for i in range(n):
                for k in s.live:
                    at = s.where(k, p, i)
                    if at[0] == 'kept':
                        continue
                    name = 'needed' if at[1] == s.cur(('W', p))[i] else 'owed'
                    getattr(s, name)[p] |= {i}
            if RULES.mutant in ('masks_all_ones', 'early_by_mask'):
                s.owed[p] = s.needed[p] = frozenset(range(n))

    @property
    def newest(s):
        return max(s.live, default=0)

    def table(s, **kw):
        """Writes the next table over the copy that does not count."""
        for k, v in kw.items():
            setattr(s, k, v)
        s.gen += 1
        content = (s.gen, s.last, s.opens, s.live, s.intent)
        to = s.at_copy if RULES.mutant == 'table_in_place' else 1 - s.at_copy
        for line in (0, 1):
            s.store(('T', to, line), (content, line)); yield
        s.at_copy = to

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

    def in_use(s):
        used = {g for r in s.index.values() for g in r[4]}
        return used | ({s.at[0]} if s.at else set()) | set(s.next)

    def free(s):
        return [g for g in sorted(s.alloc) if g not in s.in_use()]

    def reserve(s, records):
        """Room for records of so many lines each, before the first store: whole segments."""
        i, more = (s.at[1] if s.at else LINES), 0
        for n in records:
            if i + n > LINES:
                more, i = more + 1, 1
            i += n
        # an opening on a full disk needs a segment, too
        spare = 0 if RULES.mutant == 'no_spare' else 1
        while len(s.next) < more:
            free = s.free()
            if len(free) > spare or (free and spare and s.opening):
                s.next += (free[0],)
            elif s.full or len(s.alloc) == SEGMENTS:
                s.next = ()
                raise NoSpace
            else:
                s.alloc |= {min(set(range(SEGMENTS)) - s.alloc)}

    opening = merged = False

    def append(s, p, e, word, total, kept=()):
        """Stores a record; the caller drains. `kept`: ((slice, value), ...)."""
        kept = tuple(kept)
        if RULES.mutant == 'reserve_late':
            s.reserve([1 + len(kept)])
        if s.at is None or s.at[1] + 1 + len(kept) > LINES:
            s.at, s.next = (s.next[0], 1), s.next[1:]
            s.use += 1
            s.store(('G', s.at[0], 0), ('seg', (s.opens, s.use)))
        seg, i = s.at
        old = s.index.get((p, e))
        turn = old[0] + 1 if old else 0
        seed = s.cur(('G', seg, 0))[1]
        for n, (_, v) in enumerate(kept):
            s.store(('G', seg, i + 1 + n), ('byt', v))
        s.store(('G', seg, i), ('rec', seed, (p, e, turn, word, total, kept))); yield
        s.at = (seg, i + 1 + len(kept))
        if RULES.mutant == 'always_drain':
            s.drain(); yield
        have = dict(old[3]) if old else {}
        have.update(kept)
        segs = old[4] | {seg} if old else frozenset({seg})
        s.index[p, e] = (turn, word, total, tuple(sorted(have.items())), segs)

    def forget(s):
        """Takes records of dropped epochs from the index: their segments are free then."""
        oldest = min(s.live, default=s.last + 1)
        if RULES.mutant == 'drop_frees_nothing':
            return
        for p, e in list(s.index):
            if e < oldest or (RULES.mutant == 'reuse_of_live' and e not in s.live):
                del s.index[p, e]

    # ---- operations: generators that yield where a crash may come --------------------------------

    def fresh(s):
        s.value += 1
        return s.value

    def write(s, p, values):
        """A flip of the slices in `values`, by D1 to D3."""
        word, new = s.cur(('W', p)), dict(values)
        v = list(word)
        keeps = {}
        for i in sorted(new):
            if i in s.owed[p]:
                for k in s.live:
                    at = s.where(k, p, i)
                    if at[0] == 'slot' and at[1] == 1 - v[i]:
                        keeps.setdefault(at[2], set()).add(i)
        first = s.newest and not any(e >= s.newest for e, _ in s.bases(p))
        early = [i for i in sorted(new) if RULES.early and s.newest
                 and (first or s.keeps_early(p, i))]
        records = [1 + len(k) for k in keeps.values()] + ([1 + len(early)] if first or early
                                                          else [])
        if RULES.mutant != 'reserve_late':
            s.reserve(records)
        for e, some in sorted(keeps.items()):
            r = s.index[p, e]
            yield from s.append(p, e, r[1],
                                r[2], [(i, s.cur(('S', p, i, 1 - v[i]))) for i in sorted(some)])
        if keeps and RULES.mutant != 'keep_no_drain':
            s.drain(); yield
        s.owed[p] -= set(new)
        before = s.present()
        after = tuple(tuple(new.get(i, x) for i, x in enumerate(page)) if q == p else page
                      for q, page in enumerate(before))
        if s.newest and s.epoch[p] < s.newest:
            s.needed[p], s.epoch[p] = frozenset(range(SLICES[p])), s.newest
        base = [] if not (first or early) else [
            (p, s.newest, word, before[p], [(i, s.cur(('S', p, i, v[i]))) for i in early])]
        if not first and base:
            # the base by which a snapshot reads the valid slot
            e, r = s.bases(p)[-1]
            base = [(p, e, r[1], r[2], base[0][4])]
        if RULES.mutant != 'base_late':
            for b in base:
                yield from s.append(*b)
        for i, x in new.items():
            s.store(('S', p, i, 1 - v[i]), x)
        yield
        s.drain(); yield
        if not s.intent:
            s.ok_present = s.ok_present | {after}
        s.store(('W', p), tuple(1 - w if i in new else w for i, w in enumerate(v)))
        if RULES.mutant == 'base_late':
            for b in base:
                yield from s.append(*b)
        yield
        s.drain()
        s.owed[p] |= (s.needed[p] & set(new)) - set(early)
        s.needed[p] -= set(new)
        if s.intent == 0:
            s.ok_present = {after}
        yield

    def keeps_early(s, p, i):
        """A set bit may be wrong: the definition decides."""
        return i in s.needed[p] and (RULES.mutant == 'early_by_mask' or any(
            s.where(k, p, i)[0] == 'valid' for k in s.live))

    def w(s, p, *slices):
        yield from s.write(p, {i: s.fresh() for i in slices})

    def logged(s, p, i):
        """A logged flip of one slice: record, data and base in one drain."""
        word, before, x = s.cur(('W', p)), s.present(), s.fresh()
        first = s.newest and not any(e >= s.newest for e, _ in s.bases(p))
        if i in s.owed[p] or (first and not s.free() and RULES.mutant != 'no_spare'):
            yield from s.write(p, {i: x})         # an opening would have no room for the base
            return
        s.reserve([1] if first else [])
        if first:
            s.needed[p], s.epoch[p] = frozenset(range(SLICES[p])), s.newest
            yield from s.append(p, s.newest, word, before[p])
        s.store(('S', p, i, 1 - word[i]), x)
        s.store(('E',), (s.cur(('N',)), p, i, x, word))
        page = tuple(x if n == i else y for n, y in enumerate(before[p]))
        after = tuple(page if q == p else y for q, y in enumerate(before))
        s.ok_present = {before, after}; yield
        s.drain()
        s.store(('W', p), tuple(1 - w if n == i else w for n, w in enumerate(word)))
        s.ok_present = {after}; yield
        s.drain()
        s.owed[p] |= s.needed[p] & {i}
        s.needed[p] -= {i}
        yield
        s.store(('E',), None)
        s.drain(); yield

    def seal(s):
        number = (s.newest if RULES.mutant == 'number_by_live' else s.last) + 1
        s.snaps[number] = s.present()
        s.ok_live = s.ok_live | {s.live + (number,)}
        yield from s.table(last=number, live=s.live + (number,))
        if RULES.mutant != 'seal_undrained':
            s.drain()
        s.ok_live = {s.live}
        yield

    def drop(s, at):
        if len(s.live) <= at:
            return
        live = s.live[:at] + s.live[at + 1:]
        s.ok_live = s.ok_live | {live}
        if RULES.mutant == 'drop_needs_room':
            s.reserve([1])
        if RULES.mutant == 'punch_undrained':
            keep, s.live = s.live, live
            s.forget()
            yield from s.punch()
            s.live = keep
        yield from s.table(live=live)
        if RULES.mutant != 'drop_undrained':
            s.drain()
        s.ok_live = {live}
        s.forget()
        yield

    def merge(s):
        """One record says again what snapshots read of a page and epoch. The others are free."""
        todo, s.merged = [], False
        for (p, e), r in sorted(s.index.items()):
            read = {i for i in range(SLICES[p]) for k in s.live if s.where(k, p, i) == ('kept', e)}
            if RULES.mutant == 'merge_by_epoch' and e not in s.live:
                read = set()
            kept = [x for x in r[3] if x[0] in read]
            if RULES.mutant == 'merge_keeps_all':
                kept = list(r[3])
            if len(r[4]) > 1 or len(kept) < len(r[3]):
                todo.append((p, e, r, kept))
        for p, e, r, kept in todo:
            if RULES.mutant == 'merge_drops_base' and not kept and e not in s.live:
                del s.index[p, e]
                continue
            try:
                s.reserve([1 + len(kept)])
            except NoSpace:
                return                            # nothing has happened
            yield from s.append(p, e, r[1], r[2], kept)
            if RULES.mutant != 'merge_undrained':
                s.drain(); yield
            # What the old records have kept beside is true, and needed by no snapshot.
            s.index[p, e] = (s.index[p, e][0], r[1], r[2], tuple(kept), frozenset({s.at[0]}))
        s.merged = True

    def is_tight(s):
        """Each record is of an epoch that counts, and each kept slice is read by a snapshot."""
        return all(e >= min(s.live, default=e + 1) and all(
            any(s.where(k, p, i) == ('kept', e) for k in s.live) for i, _ in r[3])
                   for (p, e), r in s.index.items())

    def deploy(s):
        """Page 0 comes home by D5: owed home slots are kept, bases are said anew."""
        p = 0
        word = s.cur(('W', p))
        away = [i for i, w in enumerate(word) if w]
        if not away:
            return
        keeps, anew = {}, []
        for i in away:
            for k in s.live:
                at = s.where(k, p, i)
                if at[0] == 'slot' and at[1] == 0:
                    keeps.setdefault(at[2], set()).add(i)
        for e, r in s.bases(p):
            later = [q for f, q in s.bases(p) if f >= e]
            home = [i for i in away if all(q[1][i] == 1 and i not in dict(q[3]) for q in later)]
            if home:
                anew.append((e, tuple(0 if i in home else w for i, w in enumerate(r[1])), r[2]))
        s.reserve([1 + len(k) for k in keeps.values()] + [1] * len(anew))
        for e, some in sorted(keeps.items()):
            r = s.index[p, e]
            yield from s.append(p, e, r[1],
                                r[2], [(i, s.cur(('S', p, i, 0))) for i in sorted(some)])
        if keeps:
            s.drain(); yield
        for i in away:
            s.store(('S', p, i, 0), s.cur(('S', p, i, 1)))
        yield
        s.drain(); yield
        for e, w, total in anew:
            yield from s.append(p, e, w, total)
        s.store(('W', p), tuple(0 for _ in word)); yield
        s.drain()
        s.owed[p] -= set(away)
        yield

    def punch(s):
        for g in s.free():
            for i in range(LINES):
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
        if RULES.mutant != 'reserve_late':
            s.reserve([LINES - 1] * 2)            # room for all that the pages may append
        s.snaps[number] = s.present()
        s.ok_present, s.ok_live = s.ok_present | {s.snaps[k]}, s.ok_live | {s.live + (number,)}
        s.undo = s.present(), number
        if RULES.mutant == 'intention_late':
            s.intent = k
            p = next(p for p, page in enumerate(s.present()) if page != s.snaps[k][p])
            yield from s.write(p, {i: x for i, x in enumerate(s.snaps[k][p]) if x !=
                                   s.present()[p][i]})
        if RULES.mutant == 'undo_not_with_intention':
            yield from s.table(intent=k)
            s.drain(); yield
            yield from s.table(last=number, live=s.live + (number,))
        else:
            yield from s.table(last=number, live=s.live + (number,), intent=k)
        s.drain()
        s.ok_present, s.ok_live = {s.snaps[k]}, {s.live}
        yield
        yield from s.roll_on()
        s.undo = None

    def roll_on(s):
        k = s.intent
        if RULES.mutant == 'intention_cleared_early':
            yield from s.table(intent=0)
            s.drain(); s.intent = k; yield
        for p in range(len(SLICES)):
            want, have = s.read(k)[p], s.present()[p]
            change = {i: x for i, x in enumerate(want) if x != have[i]}
            if change:
                yield from s.write(p, change)
        s.ok_present, s.ok_live = {s.present()}, {s.live}
        yield from s.table(intent=0)
        s.drain(); yield

    def fill_disk(s):
        s.full = not s.full
        yield

    # ---- opening ---------------------------------------------------------------------------------

    def open(s):
        s.opening = True
        table, copy = s.find_table()
        s.believe(table, copy)
        s.foreign = frozenset(k for k, v in s.c.items() if len(v) > 1)
        s.renew({'table_not_renewed': 'GSWEN', 'records_not_renewed': 'TSWEN'}.get(RULES.mutant,
                                                                                   'TGSWEN')); yield
        s.read_records()
        s.opens += 1
        found = s.flip_record()
        if found:
            s.store(('W', found[1]),
                    tuple(1 - w if n == found[2] else w for n, w in enumerate(found[4])))
            if RULES.mutant != 'made_late':
                yield from s.recover(found)
        if RULES.mutant != 'seed_not_durable':
            yield from s.table()
            s.drain(); yield
        s.store(('N',), s.cur(('N',)) + 1)
        s.drain(); yield
        if RULES.mutant == 'made_late' and found:
            yield from s.recover(found)
        s.reset_masks()
        if RULES.mutant == 'old_segment':
            s.go_on_in_old_segment()
        if s.intent:
            yield from s.roll_on()
        s.opening = False

    def flip_record(s):
        """The flip record, if it is of this session and its slot is whole."""
        found = s.cur(('E',))
        if found and found[0] == s.cur(('N',)) and s.cur(('S', *found[1:3], 1 -
                                                          found[4][found[2]])) == found[3]:
            return found

    def recover(s, found):
        """The base of a page that the flip record moved, if a crash has torn it."""
        _, p, _, _, word = found
        if s.newest and not any(e >= s.newest for e, _ in
                                s.bases(p)) and RULES.mutant != 'base_not_made':
            s.reserve([1])
            yield from s.append(p, s.newest, word,
                                tuple(s.cur(('S', p, n, w)) for n, w in enumerate(word)))
        s.drain(); yield

    def read_records(s):
        """The index, from the whole records of epochs that a live snapshot may read."""
        oldest, found = min(s.live, default=s.last + 1), {}
        for g in sorted(s.alloc):
            for _, (p, e, turn, word, total, _), kept in walk(s.c, g):
                if e >= oldest or RULES.mutant == 'dead_records_count':
                    found.setdefault((p, e), []).append((turn, word, total, kept, g))
        for key, records in found.items():
            if RULES.mutant != 'turn_by_place':
                records.sort(key=lambda r: r[0], reverse=RULES.mutant == 'first_record_wins')
            have, segs, turns = {}, set(), {}
            for turn, word, total, kept, g in records:
                if turns.setdefault(turn, (word, total, kept)) != (word, total, kept):
                    raise Damage('two records with one turn')
                have.update(kept)
                segs.add(g)
            s.index[key] = (max(turns), word, total, tuple(sorted(have.items())), frozenset(segs))

    def go_on_in_old_segment(s):
        for g in sorted(s.alloc):
            last = 1
            for i, rec, _ in walk(s.c, g):
                last = i + 1 + len(rec[5])
            if 1 < last < LINES:
                s.at = (g, last)
