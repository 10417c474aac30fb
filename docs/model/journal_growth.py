#!/usr/bin/env python3
"""Brute-force check of the journal's ring and of its growth, as `engine/durable/journal` and `recovery/journal` do them.

The journal is a file of blocks: a header with its copy, and a ring of 4 blocks that grows by use to 8. The record of a long base
makes it longer still. A record takes 1, 2 or 5 blocks. A write that waits makes its own blocks durable and nothing else:
neither the length of the file nor its storage. A sync of the file makes all of it durable.

Process death: the page cache survives as it is. Power loss: each block, header, length and cell on disk holds any value
that it had in the cache since the last barrier that covers it. A block past the length on disk is lost. The next opening
must find the last durable point or the one that is being made, must not refuse the journal, and must give the ring no
block without storage: a record there would fail on a full disk.

The two slots and the two kinds of words are `durable_points.py`'s business. Here the files are three cells, which hold
the values that records have published. A superblock of a closed session holds the state that counts.

Usage: journal_growth.py [DEPTH] [MUTANT]      or: journal_growth.py --all [DEPTH]
"""
import itertools
import sys

SHORT, MOST = 4, 8
MUTANTS = {
    'growth_not_synced': 'a growth that does not make the new length durable',
    'ring_first': 'a ring that is longer before its blocks are there',
    'ring_forgotten': 'a growth that forgets the records of the shorter ring',
    'new_blocks_at_once': 'a record in the new blocks of a ring that goes round, over the oldest record',
    'no_checkpoint': 'a place used again without a checkpoint, because the disk is full',
    'checkpoint_not_synced': 'a checkpoint that does not make the cells durable',
    'over_newest': 'a base written over the newest record',
    'base_not_synced': 'a base before the cells are durable',
    'record_not_durable': 'a record that is taken for durable without its barrier',
    'hole_is_room': 'an opening that takes a hole for room',
    'found_length': 'a first record that does not wait for the length of a journal that was found longer than a new one',
    'cut_too_early': 'a journal cut to its full length before the new session is durable',
    'header_not_durable': 'a superblock that is durable before the header that covers its session',
    'found_not_synced': 'a header for the next session before the superblock that was found is durable',
    'header_in_place': 'a header written over the newest one',
    'header_not_renewed': 'a header written while the newest one is in the cache only',
    'copy_at_once': 'a copy of a header written before the header is durable',
    'copy_missing': 'a header without a copy',
    'copy_counts_first': 'a copy that counts before its header, although only the header was made durable',
}
# Changes that no violation follows from: an opening looks for holes.
HARMLESS = {
    'length_first': 'a file that is made longer before its storage is allocated',
    'growth_not_undone': 'a failed growth that leaves a longer file with a hole',
}
MUT = 'none'


def cell_of(v):
    """The cell that point `v` changes. Two cells change seldom, so that old records count for long."""
    return {1: 0, 4: 1}.get(v % 7, 2)


class Full(Exception):
    """A record that had room finds no storage."""


class Sim:
    """One machine. `c` holds, for each item, the values since the last barrier that covers it."""

    def __init__(s):
        s.c = {'S': [('open', 1, None)], 'H0': [(0, 1, 'header')], 'H1': [(0, 1, 'copy')], 'X0': [0], 'X1': [0], 'X2': [0], 'L': [SHORT]}
        s.c['A'] = [SHORT]                        # blocks with storage, from the first on
        s.full = False                            # the disk is full
        s.model, s.v = [(0, 0, 0)], 0                # the states, by points
        s.done, s.begun = 0, None                 # indices into `model`
        s.begin(1, SHORT, 1)

    def begin(s, session, blocks, block):
        """What DRAM knows after opening."""
        s.session, s.all, s.needed, s.had_grown = session, blocks, [], blocks > SHORT
        s.header = block                          # where this session's header goes, once a record is written

    def copy(s):
        t = Sim.__new__(Sim)
        t.__dict__.update(s.__dict__)
        t.c = {k: list(v) for k, v in s.c.items()}
        t.model, t.needed = list(s.model), list(s.needed)
        return t

    def cur(s, k):
        return s.c.get(k, [None])[-1]

    def store(s, k, v):
        s.c.setdefault(k, [None]).append(v)

    def barrier(s, *items):
        for k in items:
            s.c[k] = [s.cur(k)]

    def sync_journal(s):
        s.barrier(*(k for k in s.c if k[0] in 'HJLA'))

    # ---- the ring, as in `Ring` ------------------------------------------------------------------

    def room(s, blocks, needed):
        """The start of a free run, after the newest record or from the beginning."""
        if not needed:
            return 0 if blocks <= s.all else None
        (_, oldest, _), (_, start, length) = needed[0], needed[-1]
        behind = start if MUT == 'over_newest' and blocks > 1 else start + length
        if start >= oldest or MUT == 'new_blocks_at_once':
            if behind + blocks <= s.all:
                return behind
            return 0 if blocks <= oldest else None
        return behind if behind + blocks <= oldest else None

    def forget_before(s, n):
        while len(s.needed) > 1 and s.needed[0][0] < n:
            s.needed.pop(0)

    def has_room(s, blocks):
        return blocks <= s.all // 4 and s.room(blocks, s.needed) is not None

    def growth(s, blocks):
        longer = s.all
        while longer < MOST:
            longer = min(longer * 2, MOST)
            if blocks <= longer // 4:
                return longer - s.all
        return 0

    def grow(s, blocks):
        old, end = s.all, s.all + blocks
        if blocks == 0:
            return
        if MUT == 'ring_first':
            s.all = end
        if MUT == 'length_first':
            s.store('L', end); yield
        if s.full:
            # The storage lasts for one block, and the file is longer by that.
            s.store('A', old + 1)
            s.store('L', max(old + 1, s.cur('L'))); yield
            if MUT == 'growth_not_undone':
                s.store('A', old); yield
            elif MUT != 'length_first':
                s.store('L', old)
                s.store('A', old); yield
            return
        s.store('A', end)
        s.store('L', end); yield
        # Zeroes are written here. A block of a file that was longer before may hold an old record.
        for n in range(old, end):
            s.store(f'J{n}', None)
        yield
        if MUT != 'growth_not_synced':
            s.sync_journal(); yield
        s.all = end
        if MUT == 'ring_forgotten':
            s.needed = s.needed[-1:]

    # ---- operations: generators that yield where a crash may come ---------------------------------

    def point(s, blocks, base):
        """A durable point with a record of so many blocks."""
        s.v += 1
        cell = cell_of(s.v)
        state = list(s.model[-1])
        state[cell] = s.v
        s.model.append(tuple(state))
        s.begun = len(s.model) - 1
        if not base:
            if not s.has_room(blocks):
                yield from s.grow(s.growth(blocks))
            if not s.has_room(blocks) and blocks <= s.all // 4 and MUT != 'no_checkpoint':
                yield from s.checkpoint()
            if MUT == 'no_checkpoint' and not s.has_room(blocks):
                s.needed = s.needed[-1:]
            # Longer than a quarter of the ring: both files are synced, and the record has words only.
            base = not s.has_room(blocks)
            blocks = 1 if base else blocks
        n = s.needed[-1][0] + 1 if s.needed else 1
        if base:
            if s.room(blocks, s.needed[-1:]) is None:
                yield from s.grow(blocks)
                if s.room(blocks, s.needed[-1:]) is None:
                    # Nothing has happened: the point fails, and the next one includes the cell.
                    s.model.pop()
                    s.begun = None
                    return
            if MUT != 'base_not_synced':
                s.barrier('X0', 'X1', 'X2'); yield
            s.forget_before(n)
        if s.header is not None:
            if s.had_grown and MUT != 'found_length':
                # A growth that a death has cut off may have left its length in the cache.
                s.sync_journal(); yield
            yield from s.write_header(s.header, (s.session, s.session))
            s.header = None
        start = s.room(blocks, s.needed)
        names = [f'J{start + k}' for k in range(blocks)]
        if s.full and start + blocks > s.cur('A'):
            raise Full
        for k, name in enumerate(names):
            s.store(name, (s.session, n, k, blocks, base, (cell, s.v)))
        # One write: each block has arrived or not, which tears the record as well.
        yield
        if MUT != 'record_not_durable':
            s.barrier(*names); yield
        s.needed.append((n, start, blocks))
        if base:
            s.forget_before(n)
        s.done, s.begun = s.begun, None
        s.store(f'X{cell}', s.v); yield

    def write_header(s, block, sessions):
        """Writes a header durably, and then its copy over the other block. Nothing waits for the copy."""
        s.store(f'H{block}', 'torn'); yield
        s.store(f'H{block}', (*sessions, 'header')); yield
        if MUT == 'copy_at_once':
            s.store(f'H{1 - block}', 'torn'); yield
        if MUT != 'header_not_durable':
            s.barrier(f'H{block}'); yield
        if MUT != 'copy_missing':
            s.store(f'H{1 - block}', 'torn')
            s.store(f'H{1 - block}', (*sessions, 'copy')); yield

    def checkpoint(s):
        n = s.needed[-1][0] if s.needed else 0
        if MUT != 'checkpoint_not_synced':
            s.barrier('X0', 'X1', 'X2'); yield
        s.forget_before(n)

    def fill_disk(s):
        s.full = not s.full
        yield

    def close(s):
        """A fast close, which needs the journal until all is settled, and the next opening."""
        s.store('S', ('unsettled', s.session, None)); yield
        s.barrier('S'); yield
        yield from s.open(s.model[-1], False)

    # ---- opening -----------------------------------------------------------------------------------

    def newest_header(s):
        """The last session and the first one, whether it is no copy, and its block."""
        found = [(s.cur(k), n) for n, k in enumerate(('H0', 'H1')) if isinstance(s.cur(k), tuple)]
        first = 'copy' if MUT == 'copy_counts_first' else 'header'
        return max(((to, since, kind == first, n) for (since, to, kind), n in found), default=None)

    def found(s):
        """The state that an opening after a power loss finds, or `None` if it refuses the journal."""
        kind, session, state = s.cur('S')
        if kind == 'closed':
            return state
        header = s.newest_header()
        if header is None or not header[1] <= session <= header[0]:
            return None
        parts = {}
        for n in range(s.cur('L')):
            block = s.cur(f'J{n}')
            if block and block[0] == session:
                parts.setdefault(block[1], {})[block[2]] = (n, block)
        records = {}
        for number, blocks in parts.items():
            places = [blocks[k][0] for k in sorted(blocks)]
            if len(blocks) == blocks[min(blocks)][1][3] and places == list(range(places[0], places[0] + len(places))):
                records[number] = blocks[0][1]
        cells = [s.cur(f'X{cell}') for cell in range(3)]
        if records:
            low = top = max(records)
            while low - 1 in records and not records[low][4]:
                low -= 1
            for n in range(low, top + 1):
                cell, value = records[n][5]
                cells[cell] = value
        return tuple(cells)

    def open(s, state, died):
        """Begins a session that holds `state`. `died`: after a process death, in this boot."""
        kind, session, _ = s.cur('S')
        if died and kind == 'open':
            s.store('S', ('closed', session, state)); yield
        if MUT != 'found_not_synced':
            # The superblock may be in the cache only, also where it was found. The header below does not cover the
            # session before it.
            s.barrier('S'); yield
        for cell in range(3):
            s.store(f'X{cell}', state[cell])
        yield
        s.barrier('X0', 'X1', 'X2'); yield
        # The journal's blocks: all of them have storage.
        length, stored = s.cur('L'), s.cur('A')
        if stored < length and MUT != 'hole_is_room':
            if s.full:
                length = stored
            else:
                s.store('A', length); yield
        if length > MOST and MUT == 'cut_too_early':
            s.store('L', MOST)
            s.store('A', MOST); yield
        header = s.newest_header()
        if header is None:
            # A journal that was being made, beside a session that is closed: it is made again.
            for k in [k for k in s.c if k[0] == 'J']:
                s.store(k, None)
            s.store('L', SHORT)
            s.store('A', SHORT)
            s.sync_journal(); yield
            header, length = (session, session, True, 1), SHORT
        to, first, is_first, block = header
        # A close has waited for a record, and before it for the header of its session, but not for the copy.
        is_durable = kind == 'unsettled' and to <= session and (is_first or MUT == 'copy_counts_first')
        if MUT != 'header_not_renewed' and not is_durable and s.cur(f'H{block}')[:2] == (first, to):
            s.store(f'H{block}', s.cur(f'H{block}'))
            s.barrier(f'H{block}'); yield
        new, other = max(session, to) + 1, block if MUT == 'header_in_place' else 1 - block
        yield from s.write_header(other, (session, new))
        s.store('S', ('open', new, None)); yield
        s.barrier('S'); yield
        if length > MOST:
            s.store('L', MOST)
            s.store('A', MOST); yield
            length = MOST
        s.begin(new, length, 1 - other)
        s.model, s.done, s.begun = [state], 0, None


OPS = {
    'p1': lambda s: s.point(1, False),
    'p2': lambda s: s.point(2, False),
    'b1': lambda s: s.point(1, True),
    'b5': lambda s: s.point(5, True),
    'c': lambda s: s.checkpoint(),
    'full': lambda s: s.fill_disk(),
    'close': lambda s: s.close(),
}


class Check:
    def __init__(s, enough):
        s.images = s.bad = 0
        s.enough = enough
        s.seen = set()

    def tell(s, what, ops, got, want):
        s.bad += 1
        if s.bad <= 1:
            print(f'  {what} after {ops}: {got}, may be {want}')

    def power(s, sim, ops, also=(), again=True):
        """Opens every image that a loss of power can leave, with a crash at every step of the opening."""
        ok = {sim.model[sim.done], *also} | ({sim.model[sim.begun]} if sim.begun is not None else set())
        open_ = [k for k in sim.c if len(set(sim.c[k])) > 1]
        key = (tuple(sorted((k, tuple(dict.fromkeys(v))) for k, v in sim.c.items())), frozenset(ok), sim.full, again)
        if key in s.seen:
            return
        s.seen.add(key)
        for combo in itertools.product(*(dict.fromkeys(sim.c[k]) for k in open_)):
            t = sim.copy()
            t.c = {k: [v[-1]] for k, v in t.c.items()}
            for k, v in zip(open_, combo):
                t.c[k] = [v]
            for k in [k for k in t.c if k[0] == 'J' and int(k[1:]) >= t.cur('L')]:
                del t.c[k]
            s.images += 1
            state = t.found()
            if state not in ok:
                s.tell('power', ops, state or 'refused', ok)
            elif again:
                for n, _ in enumerate(t.open(state, False)):
                    s.power(t, ops + ['opening', n], {state}, again=False)
                    # The process dies in the opening, and the next one goes back as well.
                    u = t.copy()
                    for m, _ in enumerate(u.open(state, False)):
                        s.power(u, ops + ['opening', n, 'died', m], {state}, again=False)
                s.lives(t, ops + ['opened'])
            if s.bad >= s.enough:
                return

    def damage(s, sim, ops):
        """Damages either header between two operations. The machine is restarted."""
        for block in ('H0', 'H1'):
            t = sim.copy()
            t.store(block, 'torn')
            if t.found() != t.model[t.done]:
                s.tell('damage', ops + [block], t.found() or 'refused', t.model[t.done])

    def death(s, sim, ops):
        """Opens after the death of the process, with a power loss and another death at every step."""
        t = sim.copy()
        state = t.cur('S')[2] or t.model[-1]
        for n, _ in enumerate(t.open(state, True)):
            s.power(t, ops + ['died', n], {state}, again=False)
            u = t.copy()
            for m, _ in enumerate(u.open(state, True)):
                s.power(u, ops + ['died', n, m], {state}, again=False)
            s.lives(u, ops + ['died', n, 'died'])
        return t

    def lives(s, sim, ops):
        """Points of one more session, up to a ring that is full."""
        for text in ('p1 p1 p1 p1 p1', 'p1 full p1 p1 p1 p1', 'full p1 p1 p1 p1 p1'):
            t = sim.copy()
            key = (tuple(sorted((k, tuple(dict.fromkeys(v))) for k, v in t.c.items())), t.full, t.all, text)
            if key in s.seen:
                continue
            s.seen.add(key)
            for name in text.split():
                if not s.act(t, name, ops + [text]):
                    return
                s.power(t, ops + [text], again=False)
                s.damage(t, ops + [text])

    def act(s, sim, name, ops, each=lambda: None):
        """Does one operation. Returns `False` if it has failed for a reason that it must not have."""
        try:
            for _ in OPS[name](sim):
                each()
        except Full:
            s.tell('a record without storage', ops, name, 'stored')
            return False
        return True

    def run(s, sim, depth, ops=()):
        """All sequences of `depth` more operations, each also cut short by a death."""
        if depth == 0 or s.bad >= s.enough:
            return
        for name in [name for name in OPS if name != 'close']:
            whole, here = sim.copy(), list(ops) + [name]

            def each():
                if s.bad < s.enough:
                    s.power(whole, here)
                    died = s.death(whole, here)
                    if depth > 1:
                        s.run(died, depth - 2, here + ['died'])

            if s.act(whole, name, here, each):
                s.power(whole, here)
                s.damage(whole, here)
                s.run(whole, depth - 1, here)


# What needs more operations than all sequences can have.
SCRIPTS = [
    'p1 close close p1 p1 close p2',
    'p1 p1 p1 p1 p1 p1 p1 p1 p1 p1',
    'p1 p1 p1 c p1 p1 p1 p2 p1 p2 p1',
    'p1 p1 p1 c p1 p1 p1 b5 p1 b5',
    'p1 full p1 p1 p1 p1 full p1 p1 p2',
    'p2 p2 p2 p1 c p2 p2 b5 p2 p2',
    'b5 p1 b5 p1 p2 p1',
    'p1 p1 full p2 p1 b5 full b5 p2',
]


def script(check, text):
    """One sequence, with a crash at every step."""
    sim, done = Sim(), []
    for name in text.split():
        done.append(name)

        def each():
            if check.bad < check.enough:
                check.power(sim, done)
                check.death(sim, done)

        if not check.act(sim, name, done, each):
            return
        check.power(sim, done)
        check.damage(sim, done)


def run(depth, mutant, enough):
    global MUT
    MUT = mutant
    check = Check(enough)
    check.run(Sim(), depth)
    for text in SCRIPTS:
        if check.bad < enough:
            script(check, text)
    print(f'{mutant}: depth {depth}, {check.images} images, {check.bad} violations')
    return check.bad


if __name__ == '__main__':
    if sys.argv[1:2] == ['--all']:
        depth = int(sys.argv[2]) if len(sys.argv) > 2 else 3
        wrong = run(depth, 'none', 10)
        for m in HARMLESS:
            wrong += run(1, m, 10)
        for m in MUTANTS:
            found = any(run(d, m, 1) for d in range(1, depth + 1))
            wrong += not found
            if not found:
                print(f'  NOT FOUND: {m}: {MUTANTS[m]}')
        sys.exit(wrong != 0)
    depth = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    mutant = sys.argv[2] if len(sys.argv) > 2 else 'none'
    sys.exit((run(depth, mutant, 10) != 0) != (mutant != 'none'))
