#!/usr/bin/env python3
"""Brute-force check of openings that find no space for what a dead session had to keep.

The machine, the engine and the checks are those of `snapshots_page_cache.py`, with a store that has
room for so many records. After a death the working state counts, and an opening makes it a durable
point, which keeps. If the keep finds no space, the working state stays without a point: the opening
begins a session whose first durable point is the last one of the dead session. That session writes
nothing until it has made a point.

1. The newest record is made durable. Then the words of all records go to the durable words: the
   dead session may not have published its newest point.
2. Both files are synced.
3. The header of the journal, the store, and the superblock, with the length of the last point.

A shrink keeps before its commit what its point would keep. So it finds that there is no space while
nothing has happened, and its point asks for none.

Deaths and losses of power are tried at every step, in openings too, and openings with space and
without. From step 1 on a loss of power goes back to that one point, until the next one.

Geometry: three pages of one slice, with lengths of 1 to 3 slices. Part `pages` has that of
`snapshots_page_cache.py`, where two slices share a page.

Usage: snapshots_no_space.py [DEPTH] [MUTANT]      or: snapshots_no_space.py --all [DEPTH]
"""
import sys
import time

import snapshots_page_cache as base
import snapshots_page_cache_engine as engine
import snapshots_page_cache_machine as machine
from snapshots_page_cache_engine import Sim
from snapshots_page_cache_machine import OF, PAGE, Bad, within

MUTANTS = {
    'newest_not_durable': 'step 1 does not make the newest record durable first',
    'words_not_replayed': 'step 1 leaves out the words',
    'not_synced': 'step 2 is left out',
    'home_not_synced': 'step 2 syncs the reflection file alone',
    'refl_not_synced': 'step 2 syncs the home file alone',
    'words_begun': 'the durable words are set to the working words all the same',
    'begun_before_sync': 'the superblock comes before step 2',
    'header_before_sync': 'the header of the journal comes before step 2',
    'header_not_written': 'the header of the journal is left out',
    'working_len': 'the base has the length of the working state',
    'shorter_taken': 'also if the working state is shorter than the point',
    'damaged_taken': 'also if the newest record is damaged',
    'every_end_counts': 'also for a session that goes back after each end',
    'only_changed': 'the first point has what its session has changed',
    'only_words_changed': 'the first point keeps what its session has changed',
    'keeps_unkept': 'what found no space counts as kept',
    'shrink_keeps_later': 'the point of a shrink keeps, behind the commit',
    'shrink_keeps_cut_only': 'a shrink keeps what it cuts off, and nothing of what stays',
    'shrink_keeps_changed': 'a shrink does not keep what it writes itself',
}
# Harmless changes.
HARMLESS = {
    'writes': 'the session writes before its first point',
    'newest_words': 'step 1 replays the words of the newest record alone',
    'store_not_synced': 'what was kept until the space was used up is not synced',
}
HARMLESS_PARTS = {'writes': ('first', 'longer'), 'newest_words': ('beside', 'second'),
                  'store_not_synced': ('first', 'two')}
ANY = 99                                          # room for all records


class NoSpace(Exception):
    """A point that finds no room in the store, before it has done anything."""


class Full(Sim):
    def __init__(s):
        s.room = ANY
        s.begun = None                            # the session that began without a point
        s.way = None                              # how the opening goes on after a death
        s.touched = frozenset()
        Sim.__init__(s)
        s.c['JG'] = ((0, 0),)                     # header of the journal: sessions that it covers

    def boot(s, *found):
        Sim.boot(s, *found)
        s.overdue, s.touched = False, frozenset()

    def more(s):
        now = s.c['S'][0][1]
        return (s.room, s.overdue, s.touched, s.begun is not None and s.begun - now)

    def put(s, records):
        Sim.put(s, records)
        s.room -= len(records) if s.room != ANY else 0

    def write(s, values, length=None):
        s.touched |= frozenset(values)
        return Sim.write(s, values, length)

    def owes(s, i):
        """The working state differs, and this session has changed nothing."""
        return s.overdue and i not in s.touched

    def changed(s):
        return [i for i in Sim.changed(s) if not (engine.MUT == 'only_changed' and s.owes(i))]

    def to_keep(s, *of):
        found = Sim.to_keep(s, *of)
        if engine.MUT == 'only_words_changed':
            found = tuple(r for r in found if not all(s.owes(i) for i, _ in r[2]))
        return found

    def keep(s, *of):
        """As ever. The store is synced if this session has appended to it."""
        kept = s.to_keep(*of)
        if len(kept) > s.room:
            raise NoSpace
        if kept:
            yield from Sim.keep(s, *of)

    def shrink(s, length, values, state):
        mut = engine.MUT
        written = () if mut == 'shrink_keeps_changed' else tuple(values)
        if mut == 'shrink_keeps_cut_only':
            s.put(cut := tuple(r for r in s.to_keep(length) if not within(r[1], length)))
            s.kept += cut
        elif mut != 'shrink_keeps_later':
            yield from s.keep(length, written)
        yield from Sim.shrink(s, length, values, state)

    def sync(s, flush, state):
        yield from Sim.sync(s, flush, state)
        s.overdue = False

    def point_beside(s, i, value, state):
        """A point, and another thread that writes a page of which the point has nothing. Its write
        comes when the record is being written."""
        has_written = False
        for _ in Sim.sync(s, False, state):
            yield
            is_record = any(s.c[k][-1] == ('torn', s.n + 1) for k in s.c if k[0] == 'J')
            if is_record and not has_written:
                has_written = True
                yield from s.write({i: value})
        if not has_written:
            yield from s.write({i: value})

    def shrink_beside(s, i, value, state):
        """A shrink to two slices, with such a point."""
        yield from s.keep(2)
        s.store('N', 2); yield
        yield from s.point_beside(i, value, state)
        yield from s.clean()

    def put_header(s):
        session = s.cur('S')[1]
        if engine.MUT != 'header_not_written':
            s.store('JG', (session, session + 1))
            s.barrier('journal'); yield

    def begin_session(s, length):
        yield from s.put_header()
        yield from s.begin_super(length)
        yield from s.begun_with(length)

    def begin_super(s, length):
        """The superblock, which a death may leave in the page cache only."""
        s.store('E', None)
        s.store('S', ('open', s.cur('S')[1] + 1, length)); yield
        s.barrier('refl'); yield

    def begun_with(s, length):
        s.boot(length, s.table, s.kept)
        if s.cur('N') < 3:
            yield from s.clean()

    def open(s, way):
        """As ever. A rollback that finds no space fails, and so does the opening. The caller makes
        space, and opens again."""
        try:
            yield from Sim.open(s, way)
        except NoSpace:
            s.room = ANY
            yield from Sim.open(s, s.after_death())

    def go_back(s):
        if s.cur('S')[0] == 'open' and s.cur('S')[1] not in s.cur('JG'):
            raise Bad(f'refused: the journal covers {s.cur("JG")}, not {s.cur("S")}')
        yield from Sim.go_back(s)

    # ---- an opening without space ----------------------------------------------------------------

    def after_death(s):
        if s.cur('S')[0] != 'open':
            yield from s.after_closing()
            return
        if engine.MUT == 'every_end_counts' and s.begun == s.cur('S')[1]:
            yield from s.go_back()
            return
        for part in s.cur('E') or ():
            for k, v in part:
                s.store(k, v); yield
        s.store('E', None); yield
        recs = [r for r, _ in s.records()]
        s.dur = {p: s.cur('D' + p) for p in engine.PAGES}
        s.dlen = s.cur('S')[2]
        if recs:
            s.dur, s.dlen = dict(recs[-1][2]), recs[-1][5]
        s.homed, s.overdue = frozenset(), False
        kept = s.to_keep()
        if len(kept) <= s.room:
            s.way = 'point'
            yield from Sim.after_death(s)
            return
        # A dead session may have named a newer record in the reflection file: `n` stands for that.
        is_whole = (recs[-1][1] if recs else 0) >= s.n or engine.MUT == 'damaged_taken'
        may_be = s.cur('N') >= s.dlen or engine.MUT == 'shorter_taken'
        if not (is_whole and may_be):
            # The caller makes space, and opens again.
            s.way = 'refused'; yield
            s.room = ANY
            yield from Sim.after_death(s)
            return
        s.way = 'without a point'
        yield from s.without_point(kept)

    def without_point(s, kept):
        mut = engine.MUT
        s.put(kept[:s.room])
        s.kept += kept if mut == 'keeps_unkept' else kept[:s.room]
        s.also = frozenset({s.then} if s.table[2] else ())       # a rollback goes on
        yield
        recs = s.records()
        if recs and mut != 'newest_not_durable':
            top, place = recs[-1]
            s.store(f'J{place}', top)
            s.barrier('journal'); yield
        point = s.seen(s.dur, s.dlen)
        if point not in base.Check.points(s):
            raise Bad(f'the last point is {point}')
        if mut != 'newest_not_durable':
            s.point, s.began = point, None        # a loss of power goes back to this one
        words = recs[-1:] if mut == 'newest_words' else recs
        for r, _ in words if mut != 'words_not_replayed' else ():
            for p, w in r[2]:
                s.store('D' + p, w); yield
        if mut == 'words_begun':
            for p in engine.PAGES:
                s.store('D' + p, s.word(p)); yield
        length = s.dlen if mut != 'working_len' else s.cur('N')
        if mut == 'header_before_sync':
            yield from s.put_header()
        if mut == 'begun_before_sync':
            s.store('S', ('open', s.cur('S')[1] + 1, length)); yield
        if mut not in ('not_synced', 'home_not_synced'):
            s.barrier('home'); yield
        if mut not in ('not_synced', 'refl_not_synced'):
            s.barrier('refl'); yield
        if mut != 'header_before_sync':
            yield from s.put_header()
        if mut != 'store_not_synced':
            s.barrier('store'); yield
        yield from s.begin_super(length)
        s.point, s.began = point, None
        s.begun = s.cur('S')[1]
        yield from s.begun_with(length)
        s.overdue = True

    # ---- choosing --------------------------------------------------------------------------------

    def can(s, op):
        name, x = op
        is_write = name in ('write', 'beside', 'grow', 'point', 'shrink')
        if s.overdue and is_write and engine.MUT != 'writes':
            return False
        if name in ('point', 'shrink'):
            p, n = PAGE[x], s.cur('N')
            return within(p, n) and s.word(p) == s.dur[p] and (name == 'point' or n == 3)
        if name == 'dropj':
            # A drop beside a point that fails is not tried.
            return len(s.to_keep()) + 3 <= s.room and Sim.can(s, op)
        return Sim.can(s, op)

    def begin(s, op):
        """A point without space fails, and nothing has happened."""
        name, x = op
        s.then = s.now
        if name == 'room':
            s.room = x
            return
        if name in ('point', 'shrink'):
            s.v += 1
            state, step = s.now, s.point_beside
            if name == 'shrink':
                state, step = s.now[:2] + (None,), s.shrink_beside
                s.also = frozenset({state})
            s.then = tuple(s.v if i == x else v for i, v in enumerate(state))
            yield from step(x, s.v, state)
            return
        try:
            yield from Sim.begin(s, op)
        except NoSpace:
            s.then, s.began = s.now, None
            if s.may and s.may not in dict(s.table[1]):
                del s.snaps[s.may]                # a seal
            s.may = None


class Check(base.Check):
    def __init__(s, enough):
        base.Check.__init__(s, enough)
        s.found = []                              # sessions that began without a point
        s.without = 0                             # and how many openings did so

    def death(self, sim, again=True):
        """The opening finds room for all records, for one or for none."""
        self.damaged(sim)
        for room in (0, 1, ANY):
            t = sim.copy()
            t.room, t.way = room, None
            out = base.Check.death(self, t, again)
            if out is not None and out.overdue:
                self.without += 1
                if again:
                    self.found.append(out)
            if out is not None and out.way in (None, 'point'):
                return

    def damaged(self, sim):
        """The dead session has named its newest record, which is damaged: no opening may go on as
        if it knew the last point."""
        recs = sim.records() if sim.cur('S')[0] == 'open' else []
        if not recs or recs[-1][0][1] != sim.n or self.late():
            return
        t = self.bare(sim)
        t.c[f'J{recs[-1][1]}'] = (('torn', sim.n),)
        t.room, t.way = 0, None
        try:
            for _ in t.open(t.after_death()):
                if t.way in ('point', 'refused'):
                    return
        except Bad as e:
            self.report(f'damaged: {e}')

    def settled(self, t, sim):
        point = t.point
        base.Check.settled(self, t, sim)
        if t.overdue:
            t.point = point
        return t

    def script(self, sim, before, text, then, depth):
        """A sequence, whose last part is tried with all crashes. Then what sessions without a point
        do after a death at its end: some sequences, and all of this depth."""
        for op in before:
            for _ in sim.begin(op):
                pass
            sim.now = sim.then
        ops = before
        for op in text:
            ops += (op,)
            self.ops, self.found = ops, []
            self.runs += 1
            if not sim.can(op):
                raise ValueError(f'{ops} cannot be')
            self.steps(sim, op)
            found = self.found[-1:] if op == text[-1] else []
            for t in found:
                for after in then:
                    self.session(t.copy(), ops + ('died',), after)
                self.explore(t, ops + ('died',), depth, 0)
            if self.late():
                return

    def session(self, sim, ops, text):
        for op in text:
            if sim.can(op) and not self.late():
                ops += (op,)
                self.ops = ops
                self.runs += 1
                self.steps(sim, op)


def geometry(slices):
    """Sets which slices lie on which page."""
    engine.PAGES = machine.PAGES = tuple(slices)
    OF.clear()
    OF.update(slices)
    PAGE.clear()
    PAGE.update(sorted((i, p) for p, of in slices.items() for i in of))


THREE = {'P': (0,), 'O': (1,), 'Q': (2,)}
TWO = {'P': (0, 1), 'Q': (2,)}
W0, W1, W2, W02, J, F = base.W0, base.W1, base.W2, base.W02, base.J, base.F
SNAP, CUT2, GROW, GROWW = base.SNAP, base.CUT2, base.GROW, base.GROWW
BESIDE1, SPACE, ONE, FULL = ('point', 1), ('room', ANY), ('room', 1), ('room', 0)
KINDS = [W0, J, F, SNAP, base.OLD, base.NEW, SPACE, base.CP, base.HOME, base.FAST, CUT2]
# What a session without a point does. What it cannot do is left out.
AFTER = [[base.NEW, F], [J, base.OLD, J, W0], [base.HOME, SPACE, SNAP, W1]]
# Part, pages, operations before, operations with crashes, how many of these sequences follow.
SCRIPTS = {
    'beside': (THREE, (SNAP, W0, W2), (BESIDE1,), 1),
    'second': (THREE, (SNAP, W02, J, W0, W2), (BESIDE1,), 1),
    'beside a growth': (THREE, (CUT2, SNAP, W0, J, GROWW), (BESIDE1,), 1),
    'first': (THREE, (SNAP, W0), (W1,), 3),
    'two': (THREE, (SNAP, W0, SNAP, W0), (W1,), 2),
    'longer': (THREE, (CUT2, SNAP, W0), (GROW, W2), 2),
    'shorter': (THREE, (W2, SNAP, W0), (('shrink', 1),), 0),
    'shrink': (THREE, (SNAP, W0, W2, FULL), (CUT2, SPACE, CUT2), 1),
    'shrink_keeps_cut': (THREE, (SNAP, W0, W2, ONE), (CUT2, base.CUTW), 1),
    'shrink_keeps_changed': (THREE, (SNAP, W1, FULL), (base.CUTW, SPACE, base.CUTW), 1),
    'pages': (TWO, (SNAP, W0, J, W1), (W02,), 2),
    'rollback': (THREE, (W0, J, SNAP, W1, J), (base.ROLL,), 0),
}


def run(depth, mutant, enough=1, only=None):
    began = time.time()
    total = runs = 0
    where = ''
    base.KINDS, base.ATOMIC, engine.DAX, engine.SEALS = KINDS, False, False, 4
    for name in sorted(SCRIPTS, key=lambda name: not mutant.startswith(name)):
        pages, before, text, many = SCRIPTS[name]
        if only and name not in only:
            continue
        geometry(pages)
        engine.MUT = 'none'
        sim, check, t0 = Full(), Check(enough), time.time()
        engine.MUT = mutant
        check.script(sim, before, text, AFTER[:many], depth)
        total += check.images + check.deaths
        runs += check.runs
        if mutant == 'none':
            print(f'  {name}: {check.runs} operations, {check.images} images, {check.deaths} '
                  f'deaths, {check.without} openings without a point, {check.bad} violations, '
                  f'{time.time() - t0:.0f} s', flush=True)
        if check.bad:
            where = f' in {name}'
            break
    print(f'{mutant}: depth {depth}, {runs} operations, {total} images, {check.bad} violations'
          f'{where}, {time.time() - began:.0f} s', flush=True)
    return check.bad


if __name__ == '__main__':
    args = [a for a in sys.argv[1:] if not a.startswith('--')]
    depth = int(args[0]) if args else 0
    if '--all' in sys.argv:
        wrong = run(depth, 'none', 3) + sum(
            run(depth, m, 3, HARMLESS_PARTS[m]) for m in HARMLESS)
        for m in MUTANTS:
            found = run(depth, m)
            wrong += not found
            if not found:
                print(f'  NOT FOUND: {m}: {MUTANTS[m]}')
        sys.exit(wrong != 0)
    mutant = args[1] if len(args) > 1 else 'none'
    only = [a[7:] for a in sys.argv if a.startswith('--only=')]
    sys.exit((run(depth, mutant, 3, only) != 0) != (mutant in MUTANTS))
