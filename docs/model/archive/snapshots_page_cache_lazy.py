#!/usr/bin/env python3
"""Brute-force check of snapshots and page sums where durable points are kept.

A snapshot is a durable point whose record says so. The slot that a durable word names is never
stored to. So the snapshot that was sealed last lies there until a durable point moves the word.
That point keeps the bytes: in its own record, or in the snapshot store before a base. No words of
a snapshot are needed. A slice that was not kept is where the durable word says.

Sums: two places a page. One is that of the durable point, and is not stored to. The other follows
the working state. An operation on a page that has changed takes a redo record, which holds the sum.

The engine is as in `durable_points.py` and `journal_growth.py`: redo, with a new length as well; a
journal that grows before a checkpoint is made; bases; shrinks and growths; a fast close with an
unsettled superblock; and an opening after a death, which closes the session that it finds.

Process death: all stores stay. Power loss: each item has any value that it had since the last
barrier on its file. Deaths are tried at every step, and again at every step of the opening. Losses
of power are tried before each barrier and at the end of each operation, in recovery as well. Life
goes on after both. With AtomicSync (parts `atomic` and `dax`) a death goes back as a loss of power
does. On Dax a change of the length syncs both files as well.

In part `floor` every store that could have been copied before is put in the place of the one that a
loss of power leaves. The floor tells it, or going back finds the snapshots all the same.

Geometry: slices 0 and 1 on page P, slice 2 on page Q; lengths of 1, 2 and 3 slices; a journal of
two places that grows to three; up to three snapshots (five in random sequences).

Usage: snapshots_page_cache_lazy.py [DEPTH] [MUTANT]      or: snapshots_page_cache_lazy.py --all [DEPTH]
"""
import random
import sys
import time

import snapshots_page_cache_lazy_engine as engine
from snapshots_page_cache_lazy_engine import Sim
from snapshots_page_cache_lazy_machine import OF, PAGES, Bad, S, live_of, within

MUTANTS = {
    'no_keep': 'a durable point keeps nothing',
    'keep_valid': 'it keeps the new version',
    'keep_after': 'it writes to the store after the record',
    'keep_no_store_barrier': 'a flush does not sync the store before its base',
    'base_drops_kept': 'a flush stores only its own kept slices, not those of earlier records',
    'base_drops_table': 'a flush does not store which earlier records were snapshots',
    'seal_before_record': 'a flush stores its own snapshot in the table, before its base',
    'checkpoint_drops_kept': 'a checkpoint leaves kept slices in the records',
    'checkpoint_forgets_newer': 'a checkpoint drops what a point beside it has kept',
    'checkpoint_no_store_barrier': 'a checkpoint does not sync the store',
    'power_drops_kept': 'going back replays slices and words only',
    'power_store_not_synced': 'the store is not synced before the new session voids the journal',
    'death_keeps_nothing': 'the point of an opening after a death keeps nothing',
    'death_drops_kept': 'that opening does not move to the store what records have kept',
    'death_drops_table': 'nor which records were snapshots',
    'death_newest_not_durable': 'it stores the seal of a record that may be in the cache only',
    'death_old_words': 'it keeps by the durable words of the file, without the newest record',
    'death_store_not_synced': 'it does not sync the store',
    'death_store_late': 'it syncs the store after the closed superblock',
    'kept_by_newest_number': 'kept only while the snapshot that was sealed last is live',
    'keep_once': 'a slice that was kept for an older snapshot is not kept again',
    'reader_valid': 'a slice that was not kept is read from the valid slot (as first drafted)',
    'reader_one_epoch': 'a reader looks only at records of its own snapshot',
    'free_own': 'a drop frees the records of its snapshot though an older one is live',
    'free_first': 'records are freed before the table says so, durably',
    'replay_seals': 'a replayed record seals a snapshot that was dropped',
    'cut_no_keep': 'a shrink keeps nothing of what it cuts off',
    'cut_keeps_whole_pages': 'a shrink keeps whole pages, not the rest of the page that it cuts',
    'death_cut_no_keep': 'an opening finishes a shrink without keeping what it cuts off',
    'grow_no_flush': 'the first growth after a shrink makes no flush',
    'length_not_replayed': 'going back leaves out the length',
    'roll_no_intention': 'a rollback without an intention',
    'roll_no_first_point': 'a rollback without a point before it',
    'roll_point_in_the_middle': 'a rollback makes a point in the middle',
    'intention_ends_early': 'the intention ends before the last point of the rollback',
    'roll_intention_of_any_session': 'an intention of an earlier session counts',
    'roll_intention_ends_in_back': 'going back ends the intention before the redo record is void',
    'homed_stays': 'a slice that was brought home and then written counts as brought home',
    'deploy_pinned': 'deployment over a durable slot',
    'close_drops_kept': 'a close leaves kept slices in the journal',
    'close_store_late': 'a close syncs the store last',
    'floor_not_raised': 'the floor does not name the number of the store',
    'floor_not_checked': 'going back does not look at the floor',
    'floor_after_sync': 'a checkpoint raises the floor after its syncs',
    'floor_too_early': 'a checkpoint raises the floor before the store is durable',
    'floor_not_at_drop': 'a drop does not raise the floor',
    'sum_over_durable': 'the sum of the working state goes over that of the durable point',
    'sum_not_in_record': 'a record does not hold the sums of its pages (as first drafted)',
    'sum_no_entry': 'a flip on a page that has changed takes no redo record (as first drafted)',
    'sum_not_in_entry': 'a redo record holds no sums',
    'sum_word_first': 'the word is stored before the sum',
    'sum_place_stays': 'after a durable point the place of the one before stays claimed',
    'cut_sum_no_entry': 'a shrink that cuts a page in two takes no redo record',
}
HARMLESS = {
    'homed_kept': 'slices that were only brought home are kept as well',
    'spatial_second_point': 'a spatial close makes a point after deployment, too',
}
HARMLESS_PARTS = ('home', 'more')
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
        if k in 'ZI':
            return v - session if type(v) is int else v
        return v if k[0] != 'J' or not v or v[0] == 'torn' else (v[0] - session,) + v[1:]
    xs = sorted((k for k in s.c if k[0] == 'X'), key=lambda k: int(k[1:]))
    return canon((
        tuple((k, tuple(dict.fromkeys(rel(k, x) for x in v[::-1])), k in s.lz)
              for k, v in sorted(s.c.items()) if k[0] != 'X'),
        tuple(s.c[k] for k in xs), s.store_, s.now, s.then, s.point, s.began, s.may,
        tuple(sorted(s.snaps.items())), tuple(s.dur.values()), s.dlen, s.n, s.used, s.table,
        s.kept, s.jkept, s.force, s.rest, tuple(sorted(s.homed)), tuple(s.pd.values()),
        tuple(s.vp.values()), s.places, s.copies,
        tuple(sorted(s.also, key=repr))))


class Check:
    def __init__(self, enough):
        self.images = self.bad = self.states = self.runs = self.deaths = self.scribbles = 0
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
        live = dict(live_of(t.table))
        for k, n in live.items():
            if k not in sim.snaps:
                raise Bad(f'{what}: snapshot {k} came back')
            snap = t.snapshot(k, n)
            if snap != sim.snaps[k]:
                raise Bad(f'{what}: snapshot {k} is {snap}, was {sim.snaps[k]}')
        gone = set(sim.snaps) - set(live) - {sim.may}
        if gone:
            raise Bad(f'{what}: snapshots {gone} are gone')

    def settled(self, t, sim):
        """What counts from now on, in a recovered machine."""
        t.hook, t.also = None, frozenset()
        t.snaps = {k: sim.snaps[k] for k, _ in live_of(t.table)}
        t.began = t.may = None
        t.now = t.then = t.point = t.seen()
        return t

    @staticmethod
    def points(sim):
        return {sim.point} | ({sim.began} if sim.began is not None else set())

    def power(self, sim, again=True, copy=None):
        """Every image that a loss of power can leave. Returns the machines that come out of it.
        `copy`: an earlier store is in the place of the store."""
        if again and copy is None:
            for other in sim.copies:
                self.power(sim, False, other)
        key = (key_of(sim), again, copy)
        if self.late() or key in self.lost:
            return []
        self.lost.add(key)
        contents = self.points(sim) | sim.also
        out, path = [], []
        while True:
            pos = [0]

            def choose(n):
                if pos[0] == len(path):
                    path.append([0, n])
                pos[0] += 1
                return path[pos[0] - 1][0]
            t = sim.copy()
            if copy:
                t.take_copy(copy)
            t.lz = frozenset(k for k in t.c if len(set(t.c[k])) > 1)
            t.choose = choose
            t.hook = (lambda u: self.power(self.bare(u), False)) if again else None
            self.images += 1
            try:
                # The floor tells a store of another time.
                is_old = t.cur('F') > t.cur('G') and engine.MUT != 'floor_not_checked'
                if is_old and not copy:
                    raise Bad('the store is refused')
                for _ in () if is_old else t.go_back():
                    pass
                t.hook = None
                if not is_old:
                    self.look(t, sim, contents, 'an earlier store' if copy else 'power')
                if not copy:
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
        goes_back = ATOMIC or (t.is_rolling() and t.cur('S')[0] == 'open')
        contents = {sim.now, sim.then} | sim.also
        if goes_back:
            contents = self.points(sim) | sim.also
            if not ATOMIC:
                contents &= {sim.now, sim.then}
        else:
            t.also = frozenset(contents)
        t.hook = lambda u: self.power(self.bare(u), False)
        try:
            for _ in t.go_back() if goes_back else t.after_death():
                if again:
                    self.death(self.bare(t), False)
            t.hook = None
            self.look(t, sim, contents, 'back' if goes_back else 'death')
            return self.settled(t, sim)
        except Bad as e:
            self.report(e)
            return None

    def scribble(self, sim):
        """Damage that changes what is read is noticed, by the place that counts."""
        n = sim.cur('N')
        for p in PAGES:
            if not within(p, n):
                continue
            for state, at, end in ((sim.word(p), sim.vp[p], n), (sim.dur[p], sim.pd[p], sim.dlen)):
                if not within(p, end):
                    continue
                was = sim.content(p, state, end)
                slots = [sim.slot(i, b) for i, b in zip(OF[p], state) if i < end]
                sum_ = f's{p}{at}'
                for k in slots + [sum_]:
                    for v in ['scribble'] + [sim.cur(o) for o in slots]:
                        t = sim.copy()
                        t.c[k] = (v,)
                        self.scribbles += 1
                        got = t.content(p, state, end)
                        if got != was and S(p, got) == t.cur(sum_):
                            self.report(f'{k} = {v} unnoticed')
                            return
                for j in OF[p]:
                    w = [1 - b if i == j else b for i, b in zip(OF[p], state)]
                    got = sim.content(p, w, end)
                    self.scribbles += 1
                    if got != was and S(p, got) == sim.cur(sum_):
                        self.report(f'word {w} of {p} unnoticed')
                        return

    def steps(self, t, op):
        """Runs one operation with all crashes. Returns the machines that come out of crashes."""
        after = []
        t.hook = lambda u: after.extend(self.power(self.bare(u)))
        try:
            for _ in t.begin(op):
                if t.counts:
                    t.copy_store()
                after.append(self.death(self.bare(t)))
                if self.late():
                    break
            t.hook = None
            if not self.late():
                t.now = t.then
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
        self.scribble(sim)
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
            self.scribble(sim)
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
            self.scribble(sim)
            if after and rng.random() < .25:
                sim = rng.choice(after)
                ops += ('crash',)


W0, W1, W2, W02 = (('write', x) for x in ((0,), (1,), (2,), (0, 2)))
J, F, SNAP, SNAPF = ('sync', 'journal'), ('sync', 'flush'), ('snap', 'journal'), ('snap', 'flush')
CP, CPJ, CPL = ('checkpoint', 0), ('checkpoint', 1), ('checkpoint', 2)
HOME, OLD, NEW, ROLL = ('deploy', 'P'), ('drop', 'oldest'), ('drop', 'newest'), ('roll', 0)
CUT1, CUT2, CUTW, GROW, GROWW = (('cut', (1, ())), ('cut', (2, ())), ('cut', (1, (0,))),
                                 ('grow', ()), ('grow', (2,)))
FAST, SPATIAL = ('fast', 0), ('spatial', 0)
MAIN = [W0, W1, W2, W02, J, F, SNAP, CP, HOME, OLD, NEW, CUT1, CUT2, GROW, ROLL, FAST, SPATIAL]
ALL = MAIN + [('write', (0, 1)), ('write', (0, 1, 2)), SNAPF, ('drop', 'middle'),
              ('deploy', 'Q'), CUTW, GROWW, CPJ, CPL]
CORE = [W0, W1, J, F, SNAP, OLD, NEW]
BESIDE = [W0, W1, J, F, CPJ, CPL, SNAP]
LENGTHS = [W0, W1, W2, J, SNAP, CUT1, CUT2, CUTW, GROW, GROWW, OLD]
# Sequences that find mutants early, by how the names of these mutants begin.
SCRIPTS = {
    'keep': [W0, SNAP, W0, J, W1, F, W0, F, W0, J],
    'close': [SNAP, W0, SNAP, W0, J, OLD, CP, W1, J, FAST, W0, J],
    'free reader kept': [SNAP, SNAP, W0, J, NEW, W1, J, W1, J, SPATIAL, W0],
    'deploy homed': [W0, HOME, J, SNAP, HOME, W0, J, W0, J],
    'checkpoint_f': [SNAP, W0, J, W1, CPJ, FAST, W0, J],
    'seal checkpoint': [W0, SNAPF, W0, F, SNAPF, W0, J, NEW, W0, SNAP, CP, OLD],
    'roll': [W0, J, SNAP, W0, W1, J, W1, ROLL, W0, J],
    'intention': [CUT2, W0, SNAP, GROW, W0, W2, ROLL],
    'sum roll_intention_ends': [SNAP, W0, J, W0, W0, W1, J, W0, W1, ROLL, W0, J, OLD, F],
    'cut death_cut': [W1, SNAP, W0, CUT1, W0, J, GROW, W1, W2, J],
    'length grow': [W1, W2, SNAP, CUT2, W1, J, CUT1, GROWW, J, ROLL],
}
# In part `floor`: a place is used again after one checkpoint.
STORE = [SNAP, W0, J, W1, J, CP, W0, J, W0, J, OLD]


def parts(depth):
    """name, kinds, depth, life, random sequences, operations that come before, AtomicSync."""
    return [
        ('scripts', ALL, 0, 0, 0, (), False),
        ('rolls', [W0, ROLL], 2, 1, 0, (W0, J, SNAP, W0, J), False),
        ('main', MAIN, depth, 1, 0, (SNAP,), False),
        ('core', CORE, depth + (depth > 1), 1, 0, (SNAP, W0), False),
        ('lengths', LENGTHS, depth, 1, 0, (W1, W2, SNAP), False),
        ('atomic', CORE + [ROLL, CUT1, FAST], depth, 1, 0, (SNAP, W0), True),
        ('dax', LENGTHS + [ROLL, FAST], depth, 1, 0, (W1, W2, SNAP), True),
        ('beside', BESIDE, depth, 1, 0, (SNAP, W0, J, W1), False),
        ('floor', [W0, J, CP, OLD, FAST], depth, 0, 0, (SNAP, W0, J, W1), False),
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
            sim.counts = name == 'floor'
            for op in before if not is_script else ():
                for _ in sim.begin(op):
                    pass
                sim.now = sim.then
            engine.MUT = mutant
            if sim.counts:
                sim.copy_store()
            return sim
        alike = sorted(SCRIPTS, key=lambda s: not mutant.startswith(tuple(s.split())))
        scripts = [SCRIPTS[s] for s in alike] if name == 'scripts' else []
        for text in scripts if name != 'floor' else [STORE]:
            check.script(start(True), text)
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
                  f'{check.images} images, {check.deaths} deaths, {check.scribbles} scribbles, '
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
            wrong += run(depth, m, 3, HARMLESS_PARTS)
        for m in MUTANTS:
            found = any(run(d, m) for d in range(1, depth + 1))
            wrong += not found
            if not found:
                print(f'  NOT FOUND: {m}: {MUTANTS[m]}')
        sys.exit(wrong != 0)
    mutant = args[1] if len(args) > 1 else 'none'
    sys.exit((run(depth, mutant, 3, only) != 0) != (mutant in MUTANTS))
