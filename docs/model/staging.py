#!/usr/bin/env python3
"""Brute-force check of stages: free slots that are lent out, filled, and made valid later.

The geometry, the chunks, the records and the recovery are those of `logged_flips.py`: two pages, three slices,
two slots each, two threads with a lane each. A stage claims the free slots of its slices in DRAM. What has no free
slot gets a buffer: slices that another stage claims, and pages that a view pins. A fill stores past the cache, by
thread 0. Until thread 0 drains, each such store may still arrive, over whatever other threads have stored since.
A commit is an operation of any thread: the filled slices flip, buffers are copied as every write is.

An operation that writes a claimed slice commits by a redo record, over the valid slot. A deployment leaves pages with
staged slices, and so does a punch. A shrink below them is refused.

After each store, any image that a loss of power may leave is recovered. At the end of each operation the present, the
views and the filled slots are compared as well.

Usage: staging.py [DEPTH] [MUTANT]     or: staging.py --all [DEPTH]     or: staging.py --quick
"""
import itertools
import random
import sys

import logged_flips as base
from logged_flips import SLICES

MUTANTS = {
    'flip_over_stage': 'a write flips into a slot that a stage claims',
    'stage_over_stage': 'a stage claims a slot that another stage claims',
    'stage_under_view': 'a stage claims slots of a page that a view pins',
    'view_over_stage': 'a view pins a page with staged slices',
    'deploy_over_stage': 'a deployment copies to slots that a stage claims',
    'punch_staged': 'slots that a stage claims are given back to the file system',
    'cut_under_stage': 'a shrink cuts a page with staged slices off',
    'fill_not_drained': 'a fill does not wait for its stores, and another thread commits or drops the stage',
    'unfilled_flips': 'slices that were not filled flip as well',
    'commit_no_clear': 'a commit does not clear the entries that name its slices',
    'commit_one_drain': 'a commit orders nothing before its word',
    'buffer_over_claim': 'a buffer is copied to a slot that another stage claims',
    'redo_without_placed': 'a redo record lacks the slices that a stage has filled',
    'redo_flips_placed_late': 'the words of filled slices are stored after the end of the redo record',
}
MUT = 'none'
A, B = 'A', 'B'


class Sim(base.Sim):
    """Files with stages A and B, and a view."""

    def __init__(s):
        super().__init__()
        s.stages = {}                             # name -> slices, lent: slice -> side, filled: slice -> value
        s.view = None                             # (page, what its home slots held)
        s.floating = {}                           # chunk -> a store of thread 0 that may still arrive

    # ---- claims ------------------------------------------------------------------------------------

    def staged(s, but=None):
        """The slices with a free slot that a stage claims."""
        return {i for name, stage in s.stages.items() if name != but for i in stage['lent']}

    def pinned(s):
        return {i for i, w in SLICES.items() if s.view and s.view[0] == w}

    def claimed(s, but=None):
        """The slices without a free slot."""
        staged = set() if MUT == 'flip_over_stage' else s.staged(but)
        return staged | {i for i in s.pinned() if s.side(i) == 1}

    def drain(s, t):
        super().drain(t)
        if t == 0:
            s.floating = {}

    # ---- stages ------------------------------------------------------------------------------------

    def stage(s, name, slices):
        taken = set() if MUT == 'stage_over_stage' else s.staged()
        pinned = set() if MUT == 'stage_under_view' else s.pinned()
        lent = {i: 1 - s.side(i) for i in slices if i not in taken and i not in pinned}
        s.stages[name] = {'slices': slices, 'lent': lent, 'filled': {}}

    def fill(s, name, slices):
        stage = s.stages[name]
        for i in slices:
            s.v += 1
            stage['filled'][i] = s.v
            if i in stage['lent']:
                k = s.slot(i, stage['lent'][i])
                s.through(k, s.v, 0)
                s.floating[k] = s.v
        if MUT != 'fill_not_drained':
            s.drain(0)

    def commit(s, name, t, more):
        """Commits what is filled, and writes the slices `more` in the same operation."""
        stage = s.stages[name]
        new = {i: s.v for i in more} | stage['filled']
        placed = [i for i in stage['filled'] if i in stage['lent']]
        if MUT == 'unfilled_flips':
            placed = list(stage['lent'])
            new |= {i: stage['filled'].get(i) for i in placed}
        written = [i for i in new if i not in placed]
        others = s.claimed(name) if MUT != 'buffer_over_claim' else set()
        if new:
            s.change({i: new[i] for i in written}, placed, [i for i in written if i in others], t)
        del s.stages[name]

    def drop(s, name):
        del s.stages[name]

    # ---- operations --------------------------------------------------------------------------------

    def change(s, written, placed, stays, t):
        """Makes an operation: slices with new values, and slices that were filled before."""
        moves = [i for i in written if i not in stays] + placed
        words = sorted({SLICES[i] for i in moves})
        all_ = list(written) + placed
        if MUT != 'commit_no_clear' or not placed:
            s.before_words(all_, {SLICES[i] for i in all_}, t)
        for i, v in written.items():
            if i not in stays:
                s.through(s.slot(i, 1 - s.side(i)), v, t)
        if stays:
            return s.redo_placed({i: written[i] for i in stays}, moves, placed, t)
        if MUT != 'commit_one_drain' or not placed:
            s.drain(t)
        if len(words) > 1:
            s.undo = [(SLICES[i], i, s.cur(SLICES[i])[i]) for i in moves]
        for w in words:
            s.through(w, s.moved(w, [i for i in moves if SLICES[i] == w]), t)
        s.drain(t)
        s.undo = None
        s.check(s)

    def redo_placed(s, stays, moves, placed, t):
        s.drain(t)
        in_record = [i for i in moves if i not in placed] if MUT == 'redo_without_placed' else moves
        bits = tuple((i, 1 - s.side(i)) for i in in_record)
        s.through(f'l{t}', (None, tuple(stays.items()), bits), t)
        s.drain(t)
        for i, v in stays.items():
            s.through(s.slot(i, s.side(i)), v, t)
        late = [i for i in placed if MUT == 'redo_flips_placed_late']
        for w in sorted({SLICES[i] for i in moves}):
            s.through(w, s.moved(w, [i for i in moves if SLICES[i] == w and i not in late]), t)
        s.drain(t)
        s.through(f'l{t}', None, t)
        for i in late:
            s.through(SLICES[i], s.moved(SLICES[i], [i]), t)
        s.drain(t)

    def write(s, slices, t, is_logged):
        claimed = s.claimed()
        stays = [i for i in slices if i in claimed]
        if stays:
            s.change({i: s.v for i in slices}, [], stays, t)
        elif is_logged:
            s.logged_flip(slices, t, s.v)
        else:
            s.change({i: s.v for i in slices}, [], [], t)

    def deploy(s, word, t, and_punch):
        slices = [i for i in SLICES if SLICES[i] == word]
        staged = {i for i in s.staged() if i in slices}
        away = [i for i in slices if s.side(i) == 1]
        is_left = staged and MUT != 'deploy_over_stage' or s.view and s.view[0] == word
        if away and not is_left:
            s.before_words(away, {word}, t)
            for i in away:
                s.through(s.slot(i, 0), s.cur(s.slot(i, 1)), t)
            s.drain(t)
            s.through(word, s.moved(word, away), t)
            s.drain(t)
        if and_punch and all(s.side(i) == 0 for i in slices) and (not staged or MUT == 'punch_staged'):
            for i in slices:
                s.store(s.slot(i, 1), 'hole')

    def pin(s, word):
        slices = [i for i in SLICES if SLICES[i] == word]
        is_free = not any(i in s.staged() for i in slices) or MUT == 'view_over_stage'
        if is_free and all(s.side(i) == 0 for i in slices):
            s.view = (word, tuple(s.cur(s.slot(i, 0)) for i in slices))

    def resize_v(s, t):
        """Cuts page V off, and makes the file longer again."""
        is_refused = 2 in s.staged() and MUT != 'cut_under_stage' or s.view and s.view[0] == 'V'
        if is_refused:
            return False
        s.clear(s.before_words((2,), {'V'}, t), t)
        s.drain(t)
        s.through('L', 1, t)
        s.drain(t)
        s.through('V', (0, 0, 0), t)
        s.through('H2', 0, t)
        s.through('R2', 0, t)
        s.drain(t)
        s.through('L', 2, t)
        s.drain(t)
        return True

    undo = None

    def run(s, op):
        name, arg, t = op
        state = list(s.model[-1])
        if name == 'stage':
            if arg[0] not in s.stages:
                s.stage(*arg)
            return s.judge()
        if name in ('fill', 'commit', 'commit_with', 'drop') and arg[0] not in s.stages:
            return None
        if name == 'fill':
            slices = [i for i in arg[1] if i in s.stages[arg[0]]['slices']]
            s.fill(arg[0], slices)
            return s.judge()
        if name == 'drop':
            s.drop(arg[0])
            return s.judge()
        if name == 'pin':
            s.pin(arg)
            return s.judge()
        if name == 'unpin':
            s.view = None
            return s.judge()
        if name == 'resize':
            # Three states: longer, shorter, and longer again with zeroes.
            s.started += 2
            short = state[:2] + [None]
            s.model += [tuple(short), tuple(state[:2] + [0])]
            if not s.resize_v(t):
                s.model = s.model[:-2]
                s.started -= 2
                return s.judge()
            s.acked = s.started
            return s.judge()
        s.v += 1
        if name in ('write', 'logged'):
            state = [s.v if i in arg else state[i] for i in range(3)]
        if name == 'commit_with':
            state = [s.v if i in arg[1] else state[i] for i in range(3)]
        if name in ('commit', 'commit_with'):
            filled = s.stages[arg[0]]['filled']
            state = [filled.get(i, state[i]) for i in range(3)]
        s.started += 1
        s.model.append(tuple(state))
        if name in ('write', 'logged'):
            s.write(arg, t, name == 'logged')
        elif name in ('commit', 'commit_with'):
            s.commit(arg[0], t, arg[1])
        else:
            s.deploy(arg, t, name == 'punch')
        s.acked = s.started
        return s.judge()

    def judge(s):
        """Compares what is there now: the present, the view, and what stages have filled."""
        now = tuple(s.cur(s.slot(i, s.side(i))) for i in SLICES)
        if now != s.model[-1]:
            s.check.found(f'the present is {now}, and should be {s.model[-1]}')
        if s.view:
            slices = [i for i in SLICES if SLICES[i] == s.view[0]]
            held = tuple(s.cur(s.slot(i, 0)) for i in slices)
            if held != s.view[1]:
                s.check.found(f'the view of {s.view} changes to {held}')
        for name, stage in s.stages.items():
            for i, v in stage['filled'].items():
                if i in stage['lent'] and s.cur(s.slot(i, stage['lent'][i])) != v:
                    s.check.found(f'the slot that stage {name} has filled with {v} changes')


class Check:
    def __init__(self, enough):
        self.images = self.bad = 0
        self.enough = enough
        self.ops = ()
        self.seen = set()

    def found(self, what):
        self.bad += 1
        if self.bad == 1:
            print(f'  {self.ops}: {what}')

    def __call__(self, sim):
        if self.bad >= self.enough:
            return
        values = {k: list(v) for k, v in sim.c.items()}
        for k, v in sim.floating.items():
            # Over what other threads have stored since.
            values[k].append(v)
        ok = set(sim.model[sim.acked:sim.started + 1])
        key = (tuple((k, tuple(v)) for k, v in values.items()), frozenset(ok), repr(sim.undo))
        if key in self.seen:
            return
        self.seen.add(key)
        open_ = [k for k in values if len(set(values[k])) > 1]
        m0 = {k: v[-1] for k, v in sim.c.items()}
        for combo in itertools.product(*(dict.fromkeys(values[k]) for k in open_)):
            m = dict(m0)
            m.update(zip(open_, combo))
            self.images += 1
            got = next((got for got in base.outcomes(m, sim.undo) if got not in ok), None)
            if got is not None:
                self.found(f'after a loss of power {got}, may be {ok}')
                return

    def run(self, ops):
        self.ops = ops
        sim = Sim()
        sim.check = self
        for op in ops:
            sim.run(op)
            if self.bad >= self.enough:
                return


KINDS = [('stage', (A, (0, 1)), 0), ('stage', (A, (0, 2)), 0), ('stage', (B, (0,)), 0), ('fill', (A, (0, 1)), 0),
         ('fill', (A, (0, 2)), 0), ('fill', (B, (0,)), 0), ('commit', (A, ()), 1), ('commit', (B, ()), 0),
         ('commit_with', (A, (1,)), 1), ('commit_with', (B, (1, 2)), 1), ('drop', (A,), 1), ('write', (0,), 1),
         ('write', (0, 1), 0), ('write', (2,), 1), ('logged', (0,), 0), ('logged', (0, 1), 1), ('logged', (2,), 1),
         ('deploy', 'W', 1), ('punch', 'W', 1), ('punch', 'V', 0), ('pin', 'W', 0), ('unpin', 'W', 0),
         ('resize', 'V', 1)]
# Longer sequences in which each step of a stage meets each other operation.
LONG = [[('stage', (A, slices), 0), ('fill', (A, filled), 0)] for slices in ((0, 1), (0, 2), (0, 1, 2))
        for filled in ((0,), slices)]


def sequences(depth, many):
    for n in range(1, depth + 1):
        yield from itertools.product(KINDS, repeat=n)
    ends = [('commit', (A, ()), 1), ('commit_with', (A, (1,)), 1), ('drop', (A,), 1)]
    for begin in LONG:
        for first in KINDS:
            yield [first] + begin + ends[:1]
            for second, end in itertools.product(KINDS, ends):
                yield begin[:1] + [first] + begin[1:] + [second, end]
                yield [first] + begin + [second, end, ('write', (0, 1), 0)]
    rng = random.Random(7)
    for _ in range(many):
        yield [rng.choice(KINDS) for _ in range(12)]


def run(depth, mutant, enough=5, many=3000):
    global MUT
    MUT = mutant
    base.MUT, base.SUMS, base.RING = 'none', False, 2
    check = Check(enough)
    for ops in sequences(depth, many):
        check.run(ops)
        if check.bad >= enough:
            break
    print(f'{mutant}: depth {depth}, {check.images} images, {check.bad} violations', flush=True)
    return check.bad


if __name__ == '__main__':
    if sys.argv[1:2] in (['--all'], ['--quick']):
        is_quick = sys.argv[1] == '--quick'
        depth = 2 if is_quick else int(sys.argv[2]) if len(sys.argv) > 2 else 3
        wrong = run(depth, 'none', many=300 if is_quick else 20_000)
        for mutant, what in MUTANTS.items():
            if not run(2, mutant, 1):
                wrong += 1
                print(f'  NOT FOUND: {mutant}: {what}')
        sys.exit(wrong != 0)
    depth = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    mutant = sys.argv[2] if len(sys.argv) > 2 else 'none'
    sys.exit((run(depth, mutant) != 0) != (mutant != 'none'))
