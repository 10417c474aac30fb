#!/usr/bin/env python3
"""Brute-force check of how an opening notices a store of snapshots that was restored or damaged.

Part `stamps`: to which session of the pair a store belongs. An opening announces its session in the
table, makes the superblock durable, and confirms the session in the table. It dies after any step.
Between openings the user moves the store away and back, or restores the pair, the store, or both.
A session that works with the store changes both; one without a store changes the pair. The store
must be believed if nothing was restored or moved, and be refused if the pair's last work was that
of another session than the store's.

Part `ends`: the segments and the map of their ends. Two lanes append records, which fill segments
of two records, and drain. A collector frees segments. The table is changed, and repeated in its
other copy. A session closes, or dies at any step; a power loss leaves any value that a cell had
since it was last durable. Openings die as well. No image may count as damaged. All durable records
are found. Then one cell of the image is zeroed or spoiled, or everything behind the table is cut
off. An opening must notice that, or find everything. Two things are excepted in an image of a
crash: a segment without a durable end, and a table that is not repeated durably.

Usage: snapshot_integrity.py [MUTANT]      or: snapshot_integrity.py --all
"""
import itertools
import random
import sys

MUTANTS = {
    'by_number': ('stamps', 'a stamp is the number of the session alone'),
    'next_alone': ('stamps', 'the announced session alone may have the store'),
    'next_refused': ('stamps', 'the announced session may not have the store'),
    'not_confirmed': ('stamps', 'a session that has begun stays announced'),
    'confirmed_early': ('stamps', 'the session is confirmed before its superblock is durable'),
    'had_not_renewed': ('stamps', 'an opening announces, and leaves the session that had the store'),
    'at_least': ('stamps', 'a store of a later session is believed'),
    'end_undrained': ('ends', 'an end is stored by the operation that fills the segment'),
    'free_undrained': ('ends', 'a header is cleared beside the end of its segment'),
    'reuse_with_end': ('ends', 'a segment is used again and keeps its end'),
    'close_without_ends': ('ends', 'a close leaves the last segments without an end'),
    'close_uncounted': ('ends', 'a close does not count the ends'),
    'close_undrained': ('ends', 'a close marks the end of records that are not durable'),
    'ends_undrained': ('ends', 'a close counts ends that are not durable'),
    'found_unmarked': ('ends', 'an opening gives found segments no end, and a close counts on it'),
    'end_not_compared': ('ends', 'a segment may end before its end'),
    'header_not_missed': ('ends', 'a segment with an end needs no header'),
    'not_repeated': ('ends', 'one copy of the table has the newest state alone'),
    'repeat_undrained': ('ends', 'the next table goes over the copy that is durable'),
}
MUTANT = ['none']


def is_(name):
    return MUTANT[0] == name


# ---- stamps --------------------------------------------------------------------------------------

STEPS = ('announce', 'superblock', 'confirm', 'work', 'close')


class Stamps:
    """The pair is (stamp of its last session, last work). The store is (session that had it, next
    one, last work), or None."""

    def __init__(s):
        s.fresh = 0
        s.pair, s.store, s.aside = ((1, 0), 'w0'), ((1, 0), (1, 0), 'w0'), None
        s.untouched, s.saved, s.bad = True, [], None

    def copy(s):
        t = Stamps.__new__(Stamps)
        t.__dict__.update(s.__dict__)
        t.saved = list(s.saved)
        return t

    def key(s):
        return s.pair, s.store, s.aside, s.untouched, tuple(s.saved)

    def stamp(s):
        """The next number of the pair, and what tells two sessions of that number apart."""
        s.fresh += 1
        return s.pair[0][0] + 1, (0 if is_('by_number') else s.fresh)

    def is_believed(s):
        had, coming, _ = s.store
        last = s.pair[0]
        if is_('at_least'):
            return had[0] >= last[0] or coming == last
        return (had == last and not is_('next_alone')) or (
            coming == last and not is_('next_refused'))

    def open(s, died):
        """An opening that dies before step `died`. Returns False if it is refused."""
        believed = s.store is not None and s.is_believed()
        if s.store is not None:
            same = s.store[2] == s.pair[1]
            if s.untouched and not believed:
                s.bad = 'the store of the pair is refused'
            if believed and not same:
                s.bad = 'a store of another time is believed'
            if not believed:
                return False
        stamp = s.stamp()
        for step in STEPS[:died]:
            if step == 'announce' and s.store:
                had = s.store[0] if is_('had_not_renewed') else s.pair[0]
                s.store = (stamp if is_('confirmed_early') else had, stamp, s.store[2])
            elif step == 'superblock':
                s.pair = stamp, s.pair[1]
            elif step == 'confirm' and s.store and not is_('not_confirmed'):
                s.store = s.store[1], s.store[1], s.store[2]
            elif step == 'work':
                work = f'w{s.fresh}'
                s.pair = s.pair[0], work
                if s.store:
                    s.store = *s.store[:2], work
        return True

    def moves(s):
        """What the user may do between two openings."""
        yield s.copy()
        if s.store is not None and s.aside is None:
            t = s.copy()
            t.aside, t.store, t.untouched = t.store, None, False
            yield t
        if s.store is None and s.aside is not None:
            t = s.copy()
            t.store, t.aside = t.aside, None
            yield t
        for pair, store in s.saved:
            for some in ((pair, None), (None, store), (pair, store)):
                t = s.copy()
                t.untouched = all(some)
                t.pair, t.store = some[0] or t.pair, some[1] or t.store
                if t.store is not None:
                    yield t


def stamps():
    images, seen, todo = 0, set(), [(Stamps(), 0)]
    while todo:
        sim, depth = todo.pop()
        for died in range(1, len(STEPS) + 1):
            t = sim.copy()
            images += 1
            opened = t.open(died)
            if t.bad:
                print(f'  {t.bad}: {t.pair} {t.store}, opening {depth}')
                return images, 1
            if not opened or depth == 3 or (t.key(), depth) in seen:
                continue
            seen.add((t.key(), depth))
            if t.store is not None and depth < 2:
                u = t.copy()
                u.saved.append((u.pair, u.store))
                todo.extend((move, depth + 1) for move in u.moves())
            todo.extend((move, depth + 1) for move in t.moves())
    return images, 0


# ---- ends ----------------------------------------------------------------------------------------

SEGMENTS, RECORDS, LANES = 5, 2, (0, 1)


class Ends:
    """Cells: T table line, H header, R record, E end. A cell has a durable value and those since."""

    def __init__(s):
        table = (0, 0, 0)                         # generation, state, count of ends at a close
        s.c = {('T', 0, line): [(table, 0)] for line in (0, 1)}
        s.by = {}                                 # the lanes that have stored to a cell since
        s.facts, s.doubtful = {}, set()           # durable records; those that may go
        # The first table is in one copy.
        s.states, s.repeated, s.fresh = {0}, False, 0
        s.begin(table, 0)

    def begin(s, table, place):
        s.table, s.place, s.cursor = table, place, {}
        s.pending, s.closed, s.free = {0: [], 1: []}, set(), set(range(SEGMENTS))
        s.is_closed = False

    def copy(s):
        t = Ends.__new__(Ends)
        t.__dict__.update(s.__dict__)
        t.c, t.by = dict(s.c), dict(s.by)
        t.facts, t.doubtful, t.states = dict(s.facts), set(s.doubtful), set(s.states)
        t.cursor, t.pending = dict(s.cursor), {k: list(v) for k, v in s.pending.items()}
        t.closed, t.free = set(s.closed), set(s.free)
        return t

    def cur(s, *k):
        return s.c.get(k, [None])[-1]

    def store(s, lane, k, v):
        s.c[k] = [*s.c.get(k, [None]), v]
        s.by[k] = [*s.by.get(k, []), lane]

    def drain(s, lane):
        """What this lane has stored is durable, and what others had stored there before."""
        for k, lanes in list(s.by.items()):
            if lane == 'all' or lane in lanes:
                upto = len(lanes) if lane == 'all' else len(lanes) - lanes[::-1].index(lane)
                s.c[k], s.by[k] = s.c[k][upto:], lanes[upto:]
                if not s.by[k]:
                    del s.by[k]

    def end_of(s, seg):
        seed = s.cur('H', seg)
        return seed, next((i for i in range(RECORDS)
                           if (s.cur('R', seg, i) or (None,))[0] != seed), RECORDS)

    # ---- operations: generators that yield where a crash may come

    def append(s, lane, count):
        for seg in s.pending[lane]:
            s.store(lane, ('E', seg), s.end_of(seg))
        s.pending[lane], new = [], []
        at = s.cursor.get(lane, (None, RECORDS))[1]
        if len(s.free) * RECORDS < at + count - RECORDS:
            return                                # space is reserved before the first store
        for _ in range(count):
            seg, at = s.cursor.get(lane, (None, RECORDS))
            if at == RECORDS:
                if seg is not None:
                    s.closed.add(seg)
                    if is_('end_undrained'):
                        s.store(lane, ('E', seg), s.end_of(seg))
                    else:
                        s.pending[lane].append(seg)
                seg, at = min(s.free), 0
                s.free.remove(seg)
                s.fresh += 1
                s.store(lane, ('H', seg), s.fresh); yield
            s.fresh += 1
            s.store(lane, ('R', seg, at), (s.cur('H', seg), s.fresh)); yield
            s.cursor[lane] = seg, at + 1
            new.append((s.fresh, seg))
        s.drain(lane)
        s.facts.update(new)
        yield

    def collect(s):
        """Frees the oldest closed segment."""
        if not s.closed:
            return
        seg = min(s.closed, key=lambda g: s.cur('H', g) or 0)
        s.doubtful |= {f for f, g in s.facts.items() if g == seg}
        s.facts = {f: g for f, g in s.facts.items() if g != seg}
        for lane in LANES:
            s.pending[lane] = [g for g in s.pending[lane] if g != seg]
        if s.cur('E', seg) is not None and not is_('reuse_with_end'):
            s.store('main', ('E', seg), None); yield
            if not is_('free_undrained'):
                s.drain('main'); yield
        s.store('main', ('H', seg), None); yield
        s.closed.remove(seg)
        s.free.add(seg)

    def write_table(s, state, count):
        s.table, s.place = (s.table[0] + 1, state, count), 1 - s.place
        for line in (0, 1):
            s.store('main', ('T', s.place, line), (s.table, line)); yield

    def change(s, state=None, count=0):
        state = s.table[1] + 1 if state is None else state
        s.states.add(state)
        s.repeated = False
        yield from s.write_table(state, count)
        s.drain('main')
        s.states = {state}
        yield
        if not is_('not_repeated'):
            yield from s.write_table(state, count)
            if not is_('repeat_undrained'):
                s.drain('main')
        s.repeated = True
        yield

    def close(s):
        if not is_('close_undrained'):
            s.drain('all'); yield
        last = {seg for seg, _ in s.cursor.values()}
        full = {seg for lane in LANES for seg in s.pending[lane]}
        for seg in sorted((full | last) - (last if is_('close_without_ends') else set())):
            s.store('main', ('E', seg), s.end_of(seg)); yield
        if not is_('ends_undrained'):
            s.drain('main'); yield
        s.closed |= last
        s.cursor, s.pending = {}, {0: [], 1: []}
        count = len([g for g in s.closed if s.cur('E', g) is not None])
        yield from s.change(s.table[1], 0 if is_('close_uncounted') else 1 + count)
        s.is_closed = True

    def close_late(s):
        """A lane stores a record, and the close comes before its drain: no operation is left."""
        for step in s.append(0, 1):
            yield step
            if s.by and is_('close_undrained'):
                break
        yield from s.close()

    def judge(s):
        """What an opening finds: the table, its place, the records, and whether there is damage."""
        found = []
        for copy in (0, 1):
            lines = [s.cur('T', copy, line) for line in (0, 1)]
            if all(type(x) is tuple for x in lines) and lines[0][0] == lines[1][0]:
                found.append((lines[0][0], copy))
        if not found:
            return None
        (table, copy), facts, there, ended, damage = max(found), {}, {}, 0, False
        for seg in range(SEGMENTS):
            word, seed = s.cur('E', seg), s.cur('H', seg)
            if type(seed) is not int:
                damage |= word is not None and not is_('header_not_missed')
                continue
            _, end = s.end_of(seg)
            if word is not None and word != (seed, end) and not is_('end_not_compared'):
                damage = True
                continue
            ended += word is not None
            facts.update({s.cur('R', seg, i)[1]: seg for i in range(end)})
            if end:
                there[seg] = word
        damage |= table[2] != 0 and table[2] != 1 + ended
        return table, copy, facts, there, damage

    def open(s):
        table, copy, _, there, _ = s.judge()
        s.begin(table, copy)
        s.states = {table[1]}
        s.free -= set(there)
        s.closed = set(there)
        s.by = {k: ['dead'] * (len(v) - 1) for k, v in s.c.items() if len(v) > 1}
        s.drain('all'); yield
        for seg, word in there.items():
            if word is None and not is_('found_unmarked'):
                s.store('main', ('E', seg), s.end_of(seg)); yield
        yield from s.change(table[1], 0)


OPS = {
    'a': lambda s: s.append(0, 1), 'A': lambda s: s.append(0, 3), 'b': lambda s: s.append(1, 1),
    'B': lambda s: s.append(1, 2), 'f': lambda s: s.collect(), 't': lambda s: s.change(),
    'c': lambda s: s.close(), 'C': lambda s: s.close_late(), 'o': lambda s: s.open(),
}


class Check:
    def __init__(s):
        s.images = s.bad = 0
        s.seen = set()

    def tell(s, ops, what):
        s.bad += 1
        if s.bad == 1:
            print(f'  {what} after {ops}', flush=True)

    def images_of(s, sim, rng):
        open_cells = [k for k, v in sim.c.items() if len(v) > 1]
        combos = 1
        for k in open_cells:
            combos *= len(sim.c[k])
        every = itertools.product(*(sim.c[k] for k in open_cells))
        if combos > 64:
            every = [[rng.choice(sim.c[k]) for k in open_cells] for _ in range(64)]
        for combo in every:
            t = sim.copy()
            t.c = {k: v[-1:] for k, v in sim.c.items()} | {k: [x] for k, x in
                                                          zip(open_cells, combo)}
            t.by = {}
            yield t

    def look(s, sim, ops, rng):
        for t in s.images_of(sim, rng):
            key = (tuple(sorted((k, v[0]) for k, v in t.c.items() if v[0] is not None)),
                   tuple(sorted(sim.facts)), sim.is_closed, sim.repeated)
            if key in s.seen:
                continue
            s.seen.add(key)
            s.images += 1
            found = t.judge()
            if found is None or found[4] or found[0][1] not in sim.states:
                return s.tell(ops, f'an image counts as damaged: {found}')
            if not set(sim.facts) <= set(found[2]):
                return s.tell(ops, 'records are lost in an image')
            s.spoil(t, sim, ops, found)

    def spoil(s, t, sim, ops, before):
        for k in [*t.c, 'cut']:
            for value in (None, 'spoiled'):
                u = t.copy()
                if k == 'cut':
                    u.c = {x: v for x, v in u.c.items() if x[0] == 'T'}
                else:
                    u.c[k] = [value]
                if not sim.is_closed and (k == 'cut' or k[0] in 'HR' and t.cur('E', k[1]) is None):
                    continue
                if k[0] == 'T' and not sim.repeated:
                    continue
                found = u.judge()
                if found is None or found[4]:
                    continue
                if not set(sim.facts) & set(before[2]) <= set(found[2]):
                    return s.tell(ops, f'{k} was {value}, which is not noticed')
                if found[0][1] != before[0][1]:
                    return s.tell(ops, f'{k} was {value}, and an older table counts')

    def run(s, text, rng):
        sim, done = Ends(), ''
        for name in text:
            if sim.is_closed:
                name = 'o'
            done += name
            for _ in OPS[name](sim):
                s.look(sim, done, rng)
                if s.bad:
                    return
                if rng.random() < .02:            # a death, and the opening after it
                    sim = next(s.images_of(sim, rng)) if rng.random() < .5 else sim.copy()
                    done += '!o'
                    sim.is_closed = False
                    for _ in OPS['o'](sim):
                        s.look(sim, done, rng)
                        if s.bad:
                            return
                    break
            s.look(sim, done, rng)
            if s.bad:
                return


def ends():
    check = Check()
    texts = [''.join(x) for x in itertools.product('aABft', repeat=3)]
    scripts = ['AaAafoc', 'aAbBcoaAfac', 'AAafattC', 'aC', 'ttttc', 'AaAffaAac', 'AcoAfcofac']
    for seed, text in enumerate(scripts + [text + 'co' for text in texts]):
        check.run(text, random.Random(seed))
    for seed in range(60):
        rng = random.Random(seed)
        check.run(''.join(rng.choice('aaAAbBfftcC') for _ in range(25)), rng)
        if check.bad:
            break
    return check.images, check.bad


def run(mutant):
    MUTANT[0] = mutant
    parts = {'stamps': stamps, 'ends': ends}
    bad = 0
    for name, part in parts.items():
        if mutant == 'none' or MUTANTS[mutant][0] == name:
            images, found = part()
            bad += found
            print(f'{mutant}: {name}, {images} images, {found} violations', flush=True)
    return bad


def main():
    if sys.argv[1:2] == ['--all']:
        wrong = run('none')
        for mutant, (_, what) in MUTANTS.items():
            if not run(mutant):
                wrong += 1
                print(f'  NOT FOUND: {mutant}: {what}')
        return wrong != 0
    mutant = sys.argv[1] if len(sys.argv) > 1 else 'none'
    return (run(mutant) != 0) != (mutant in MUTANTS)


if __name__ == '__main__':
    sys.exit(main())
