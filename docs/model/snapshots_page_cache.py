#!/usr/bin/env python3
"""Brute-force check of snapshots where durable points are kept.

A snapshot is a durable point that the table of the store names. The slot that a durable word names
is never stored to. So the snapshot that was sealed last lies there until a durable point moves the
word. That point keeps the bytes in the store, which is synced before the record of the point. A
slice that was not kept is where the durable word says. There are no other records.

The engine is as in `durable_points.py` and `journal_growth.py`: redo, with a new length as well; a
journal that grows before a checkpoint is made; bases; shrinks and growths, also in the middle of a
slice; a fast close with an unsettled superblock; and an opening after a death, which closes the
session that it finds. A rollback goes on at an opening.

Process death: all stores stay. Power loss: each item has any value that it had since the last
barrier on its file. Deaths are tried at every step, and again at every step of the opening. Losses
of power are tried before each barrier and at the end of each operation, in recovery as well. Life
goes on after both. With AtomicSync (parts `atomic` and `dax`) a death goes back as a loss of power
does. On Dax a change of the length syncs both files as well. The snapshots are read at each step.

Geometry: slices 0 and 1 on page P, slice 2 on page Q; lengths of 1, 1.5, 2 and 3 slices; a journal
of two places that grows to three; up to three snapshots (five in random sequences).

Usage: snapshots_page_cache.py [DEPTH] [MUTANT]      or: snapshots_page_cache.py --all [DEPTH]
"""
import random
import sys
import time

import snapshots_page_cache_engine as engine
from snapshots_page_cache_engine import Sim
from snapshots_page_cache_machine import Bad

MUTANTS = {
    'no_keep': 'a durable point keeps nothing',
    'keep_valid': 'it keeps the new version',
    'keep_after': 'it keeps after its record',
    'keep_not_synced': 'it does not sync the store before its record',
    'keep_once': 'a slice that was kept for an older snapshot is not kept again',
    'keep_anew': 'a slice is kept at each point, though the snapshot has it',
    'zero_not_kept': 'a slice of zeroes is not kept, as in a shrink',
    'reader_valid': 'a slice that was not kept is read from the valid slot',
    'reader_one_epoch': 'a reader looks only at records of its own snapshot',
    'reader_newest_record': 'a reader takes the newest record',
    'reader_present_length': 'a page past the working length reads as zero (as first drafted)',
    'table_not_synced': 'a seal returns before its table is durable',
    'table_before_point': 'the table names a snapshot before its point',
    'point_before_table': 'another point comes before the table',
    'l_before_table': 'L is the new snapshot before the table is durable',
    'l_before_point': 'the point of a seal keeps for the snapshot that it makes',
    'number_by_live': 'a number follows from the live snapshots',
    'drop_l_early': 'a drop changes L before the table',
    'drop_not_synced': 'a drop frees records before its table is durable',
    'free_first': 'records are freed before the table says so',
    'free_by_oldest': 'a drop frees the records of its epoch though an older snapshot is live',
    'free_newer_served': 'records that are two epochs newer than the oldest snapshot are freed',
    'open_not_synced': 'an opening does not sync the store that it has found',
    'open_table_not_synced': 'it syncs the records, and not the table',
    'death_keeps_nothing': 'the point of an opening after a death keeps nothing',
    'death_keeps_cut_only': 'it keeps only what a shrink cuts off (as first drafted)',
    'death_cut_no_keep': 'it keeps nothing of what a shrink cuts off',
    'death_old_words': 'it keeps by the durable words of the file, without the newest record',
    'death_store_not_synced': 'it does not sync the store before the closed superblock',
    'cut_no_keep': 'a shrink keeps nothing of what it cuts off',
    'cut_keeps_whole_pages': 'a shrink keeps whole pages, not the rest of the page that it cuts',
    'cut_slice_no_keep': 'a shrink does not keep the slice that it cuts in two',
    'cleaned_before_point': 'a shrink cleans up before its point',
    'grow_no_flush': 'the first growth after a shrink makes no flush',
    'length_not_replayed': 'going back leaves out the length',
    'roll_no_intention': 'a rollback without an intention',
    'roll_no_undo_point': 'an undo snapshot without a point before it',
    'intention_late': 'the intention is durable after the first write',
    'intention_before_undo': 'the intention comes in a table before that of the undo snapshot',
    'intention_ends_early': 'the intention ends before the last point of the rollback',
    'roll_not_gone_on': 'an opening does not go on with a rollback',
    'homed_stays': 'a slice that was brought home and then written counts as brought home',
    'deploy_pinned': 'deployment over a durable slot',
}
# Harmless changes, and the parts that try them.
HARMLESS = {
    'homed_left_out': 'slices that were only brought home are not kept',
    'death_newest_durable': 'an opening after a death makes the newest record durable first',
    'point_in_rollback': 'points in the middle of a rollback',
    'newest_of_any_length': 'L(p) is a snapshot that does not reach the page: keeps more',
}
HARMLESS_PARTS = {'homed_left_out': ('home', 'more'), 'death_newest_durable': ('core', 'beside'),
                  'point_in_rollback': ('rolls',), 'newest_of_any_length': ('lengths', 'main')}
KINDS = []
ATOMIC = False


def key_of(s):
    """The machine up to the names of values and sessions. The newest value comes first."""
    names = {}
    session = s.c['S'][0][1]

    def canon(x):
        if type(x) is int:
            return x if x < 1000 else names.setdefault(x, 1000 + len(names))
        return tuple(canon(y) for y in x) if type(x) is tuple else x

    def rel(k, v):
        if k[0] == 'S':
            return (v[0], v[1] - session, v[2])
        if k == 'Z':
            return v - session if type(v) is int else v
        return v if k[0] != 'J' or not v or v[0] == 'torn' else (v[0] - session,) + v[1:]
    xs = sorted((k for k in s.c if k[0] == 'X'), key=lambda k: int(k[1:]))
    return canon((
        tuple((k, tuple(dict.fromkeys(rel(k, x) for x in v[::-1])), k in s.lz)
              for k, v in sorted(s.c.items()) if k[0] != 'X'),
        tuple(s.c[k] for k in xs), s.store_, s.now, s.then, s.point, s.began, s.may,
        tuple(sorted(s.snaps.items())), tuple(s.dur.values()), s.dlen, s.n, s.used, s.table,
        s.kept, s.force, s.rest, tuple(sorted(s.homed)), s.places,
        tuple(sorted(s.also, key=repr)), tuple(s.only or ()), s.more()))


class Check:
    def __init__(self, enough):
        self.images = self.bad = self.states = self.runs = self.deaths = 0
        self.enough = enough
        self.known, self.lost, self.died = {}, set(), set()
        self.ops = ()

    def late(self):
        return self.bad >= self.enough

    def report(self, what):
        self.bad += 1
        if self.bad == 1:
            print(f'  {self.ops}: {what}')

    def look(self, t, sim, contents, what):
        got = t.seen()
        if got not in contents:
            raise Bad(f'{what}: {got}, may be {contents}')
        live = dict(t.table[1])
        for k in live:
            if k not in sim.snaps:
                raise Bad(f'{what}: snapshot {k} came back')
        self.read(t, sim, what)
        gone = set(sim.snaps) - set(live) - {sim.may}
        if gone:
            raise Bad(f'{what}: snapshots {gone} are gone')
        if what == 'death' and self.ops[-1][0] == 'roll' and got == sim.then != sim.now:
            if sim.now not in [sim.snaps[k] for k in live]:
                raise Bad(f'{what}: a rollback without an undo snapshot')

    def read(self, t, sim, what):
        """Each live snapshot reads as it was sealed, and each record is true."""
        for k, n in t.table[1]:
            snap = t.snapshot(k, n)
            if k in sim.snaps and snap != sim.snaps[k]:
                raise Bad(f'{what}: snapshot {k} is {snap}, was {sim.snaps[k]}')
        seen = {}
        for e, p, kept in t.kept:
            for i, v in kept:
                if seen.setdefault((e, p, i), v) != v:
                    raise Bad(f'{what}: two records of one slice and epoch differ')

    def settled(self, t, sim):
        """What counts from now on, in a recovered machine."""
        t.hook, t.also, t.only = None, frozenset(), None
        t.snaps = {k: sim.snaps[k] for k, _ in t.table[1]}
        t.began = t.may = None
        t.now = t.then = t.point = t.seen()
        return t

    @staticmethod
    def points(sim):
        return {sim.point} | ({sim.began} if sim.began is not None else set())

    def power(self, sim, again=True):
        """Every image that a loss of power can leave. Returns the machines that come out of it."""
        key = (key_of(sim), again)
        if self.late() or key in self.lost:
            return []
        self.lost.add(key)
        contents = sim.only or (self.points(sim) | sim.also)
        out, path = [], []
        while True:
            pos = [0]

            def choose(n):
                if pos[0] == len(path):
                    path.append([0, n])
                pos[0] += 1
                return path[pos[0] - 1][0]
            t = sim.copy()
            t.lz = frozenset(k for k in t.c if len(set(t.c[k])) > 1)
            t.choose = choose
            t.hook = (lambda u: self.power(self.bare(u), False)) if again else None
            self.images += 1
            try:
                for _ in t.open(t.go_back()):
                    pass
                t.hook = None
                self.look(t, sim, contents, 'power')
                self.settled(t, sim)
                for k in t.lz:
                    t.c[k] = ('junk',)
                t.lz = frozenset()
                out.append(t)
            except Bad as e:
                self.report(e)
                return out
            while path and path[-1][0] + 1 == path[-1][1]:
                path.pop()
            if not path or self.late():
                return out
            path[-1][0] += 1

    @staticmethod
    def bare(u):
        w = u.copy()
        w.hook = None
        return w

    def death(self, sim, again=True):
        """The process dies here. Returns the machine that comes out of it."""
        key = (key_of(sim), again, ATOMIC)
        if self.late() or key in self.died:
            return None
        self.died.add(key)
        self.deaths += 1
        t = sim.copy()
        contents = self.points(sim) if ATOMIC else {sim.now, sim.then}
        contents = sim.only or (contents | sim.also)
        if not ATOMIC:
            t.also = frozenset(contents)
        t.hook = lambda u: self.power(self.bare(u), False)
        try:
            for _ in t.open(t.go_back() if ATOMIC else t.after_death()):
                if again:
                    self.death(self.bare(t), False)
            t.hook = None
            self.look(t, sim, contents, 'back' if ATOMIC else 'death')
            return self.settled(t, sim)
        except Bad as e:
            self.report(e)
            return None

    def steps(self, t, op):
        """Runs one operation with all crashes. Returns the machines that come out of crashes."""
        after = []
        t.hook = lambda u: after.extend(self.power(self.bare(u)))
        try:
            for _ in t.begin(op):
                after.append(self.death(self.bare(t)))
                if self.late():
                    break
                if op[0] not in ('fast', 'spatial'):
                    self.read(t, t, 'at a step')
            t.hook = None
            if not self.late():
                t.now, t.also, t.only = t.then, frozenset(), None
                after.append(self.death(t))
                after.extend(self.power(t))
                self.look(t, t, {t.now}, 'running')
        except Bad as e:
            self.report(e)
        return [r for r in after if r is not None]

    def explore(self, sim, ops, depth, life):
        key = key_of(sim)
        if self.late() or self.known.get(key, -1) >= depth:
            return
        self.known[key] = depth
        self.states += 1
        self.ops = ops
        for op in KINDS if depth else ():
            if not sim.can(op):
                continue
            t = sim.copy()
            self.ops = ops + (op,)
            self.runs += 1
            after = self.steps(t, op)
            self.explore(t, ops + (op,), depth - 1, life)
            for r in after if life else ():
                self.explore(r, ops + (op, 'crash'), min(life, depth - 1), life - 1)
            if self.late():
                return

    def script(self, sim, text):
        """One sequence, with all crashes, and one operation after each of them."""
        ops = ()
        for op in text if not self.late() else ():
            ops += (op,)
            self.ops = ops
            self.runs += 1
            if not sim.can(op):
                raise ValueError(f'{ops} cannot be')
            self.steps(sim, op)
            if self.late():
                return

    def random(self, rng, length, start):
        sim, ops = start.copy(), ()
        for _ in range(length):
            op = rng.choice([k for k in KINDS if sim.can(k)])
            ops += (op,)
            self.ops = ops
            self.runs += 1
            after = self.steps(sim, op)
            if self.late():
                return
            if after and rng.random() < .25:
                sim = rng.choice(after)
                ops += ('crash',)


W0, W1, W2, W02 = (('write', x) for x in ((0,), (1,), (2,), (0, 2)))
J, F, SNAP, SNAPF, SNAPW = (('sync', 'journal'), ('sync', 'flush'), ('snap', 'journal'),
                            ('snap', 'flush'), ('beside', 0))
CP, CPJ, CPL = ('checkpoint', 0), ('checkpoint', 1), ('checkpoint', 2)
HOME, OLD, NEW, OLDJ, NEWJ = (('deploy', 'P'), ('drop', 'oldest'), ('drop', 'newest'),
                              ('dropj', 'oldest'), ('dropj', 'newest'))
CUT1, CUTH, CUT2, CUTW, GROW, GROWW = (('cut', (1, ())), ('cut', (1.5, ())), ('cut', (2, ())),
                                       ('cut', (1, (0,))), ('grow', ()), ('grow', (2,)))
ROLL, ROLL2, FAST, SPATIAL = ('roll', 0), ('roll', 1), ('fast', 0), ('spatial', 0)
MAIN = [W0, W1, W2, W02, J, F, SNAP, CP, HOME, OLD, NEW, CUT1, CUT2, GROW, ROLL, FAST, SPATIAL]
ALL = MAIN + [('write', (0, 1)), ('write', (0, 1, 2)), SNAPF, SNAPW, ('drop', 'middle'), OLDJ, NEWJ,
              ('deploy', 'Q'), CUTW, CUTH, GROWW, CPJ, CPL, ROLL2]
CORE = [W0, W1, J, F, SNAP, SNAPW, OLD, NEW]
BESIDE = [W0, W1, J, F, CPJ, CPL, SNAPW, OLDJ, NEWJ]
LENGTHS = [W0, W1, W2, J, SNAP, CUT1, CUTH, CUT2, CUTW, GROW, GROWW, OLD]
# Sequences that find mutants early, by how the names of these mutants begin.
SCRIPTS = {
    'keep': [W0, SNAP, W0, J, W1, F, W0, F, SNAP, W0, J, W0, J],
    'free reader': [SNAP, SNAP, W0, J, NEW, W1, J, SNAP, W1, J, OLD, SPATIAL, W0, J],
    'deploy homed': [W0, HOME, J, SNAP, HOME, W0, J, W0, J],
    'drop l_ point table number': [SNAP, W0, SNAPW, J, W1, NEWJ, W0, J, SNAPW, W0, OLDJ, J],
    'death open': [W0, SNAPF, W0, F, SNAPF, W0, J, NEW, W0, SNAP, CP, OLD, FAST],
    'roll intention': [W0, J, SNAP, W0, W1, J, W1, ROLL, W0, J, ROLL2],
    'intention': [CUT2, W0, SNAP, GROW, W0, W2, ROLL],
    'cut death_cut cleaned': [W1, SNAP, W0, CUT1, W0, J, GROW, W1, W2, J],
    'cut_slice zero': [W1, SNAP, CUTH, W0, J, SNAP, GROW, W1, W2, J],
    'newest reader_present': [CUT2, SNAP, GROW, W2, J, SNAP, CUT2, GROW, W2, J],
    'death_old': [CUT2, FAST, GROW, W2, SNAP, CUT2],
    'length grow': [W1, W2, SNAP, CUT2, W1, J, CUT1, GROWW, J, ROLL],
}


def parts(depth):
    """name, kinds, depth, life, random sequences, operations that come before, AtomicSync."""
    return [
        ('scripts', ALL, 0, 0, 0, (), False),
        ('rolls', [W0, ROLL, CUTH], 2, 1, 0, (W0, J, SNAP, W0, J), False),
        ('main', MAIN, depth, 1, 0, (SNAP,), False),
        ('core', CORE, depth + (depth > 1), 1, 0, (SNAP, W0), False),
        ('lengths', LENGTHS, depth, 1, 0, (W1, W2, SNAP), False),
        ('atomic', CORE + [ROLL, CUT1, FAST], depth, 1, 0, (SNAP, W0), True),
        ('dax', LENGTHS + [ROLL, FAST], depth, 1, 0, (W1, W2, SNAP), True),
        ('beside', BESIDE, depth, 1, 0, (SNAP, W0, J, W1, SNAP, W0), False),
        ('home', MAIN, depth, 0, 0, (W0, J, SNAP), False),
        ('more', MAIN, depth - 1, 1, 0, (SNAP, W0, J, SNAP, W0), False),
        ('random', ALL, 0, 0, 20 if depth > 1 else 2, (), False),
        ('random atomic', ALL, 0, 0, 12 if depth > 1 else 2, (W0, SNAP, W0, J), True),
    ]


def run(depth, mutant, enough=1, only=None, show=True):
    global KINDS, ATOMIC
    began = time.time()
    total = runs = 0
    where, check = '', None
    for name, kinds, d, life, many, before, ATOMIC in (
            sorted(parts(depth), key=lambda part: not mutant.startswith(part[0][:4]))):
        if only and name not in only:
            continue
        engine.MUT, KINDS, engine.SEALS = 'none', kinds, 5 if d == 0 else 3
        engine.DAX = name == 'dax'
        check, t0 = Check(enough), time.time()

        def start(is_script=False):
            engine.MUT = 'none'
            sim = Sim()
            for op in before if not is_script else ():
                for _ in sim.begin(op):
                    pass
                sim.now = sim.then
            engine.MUT = mutant
            return sim
        alike = sorted(SCRIPTS, key=lambda s: not mutant.startswith(tuple(s.split())))
        for script in alike if name == 'scripts' else []:
            check.script(start(True), SCRIPTS[script])
        if d:
            check.explore(start(), before, d, life)
        rng = random.Random(7)
        for _ in range(many):
            if not check.late():
                check.random(rng, 10, start())
        total += check.images + check.deaths
        runs += check.runs
        if mutant == 'none' and show:
            print(f'  {name}: depth {d}, {check.runs} operations from {check.states} states, '
                  f'{check.images} images, {check.deaths} deaths, '
                  f'{check.bad} violations, {time.time() - t0:.0f} s', flush=True)
        if check.bad:
            where = f' in {name}'
            break
    bad = check.bad
    print(f'{mutant}: depth {depth}, {runs} operations, {total} images, {bad} violations{where}, '
          f'{time.time() - began:.0f} s', flush=True)
    return bad


if __name__ == '__main__':
    args = [a for a in sys.argv[1:] if not a.startswith('--')]
    depth = int(args[0]) if args else 1
    only = [a[7:] for a in sys.argv if a.startswith('--only=')]
    if '--all' in sys.argv:
        wrong = run(depth, 'none', 3)
        for m in HARMLESS:
            wrong += run(depth, m, 3, HARMLESS_PARTS[m])
        for m in MUTANTS:
            found = any(run(d, m) for d in range(1, depth + 1))
            wrong += not found
            if not found:
                print(f'  NOT FOUND: {m}: {MUTANTS[m]}')
        sys.exit(wrong != 0)
    mutant = args[1] if len(args) > 1 else 'none'
    sys.exit((run(depth, mutant, 3, only) != 0) != (mutant in MUTANTS))
