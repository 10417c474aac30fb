"""A part of `snapshots_dax.py`: each operation in its steps.

Nothing here can be run by itself.
"""
from snapshots_dax_machine import Machine
from snapshots_dax_recovery import (OF, PAGE, PAGES, cfg, cleaned, cut_content, first_half, mut,
                                    within)


class Sim(Machine):
    # ---- writes ----------------------------------------------------------------------------------

    def gap(s):
        """Here an operation is half done. The gate keeps seals out."""
        if mut('no_gate') and s.table()[1] < cfg.seals:
            s.beside(s.seal)

    def logged_flip(s, values, t):
        """It has one drain, so it can keep nothing."""
        slices = sorted(values)
        p = PAGE[slices[0]]
        if any(lane != t for lane, _ in s.named(slices)):
            return s.flip(values)
        if s.to_keep(slices) and not mut('logged_keep', 'no_keep'):
            return s.flip(values)
        s.keep(slices)
        s.gap()
        targets = {i: 1 - s.side(i) for i in slices}
        s.seq[t] += 1
        e = s.seq[t] % cfg.ring
        batch = cfg.ring // 2
        if s.seq[t] % batch == batch - 1:
            for key, (_, _, page) in s.live.items():
                if key[0] == t and s.dw[key] == 0:
                    s.flush('w' + page)
                    s.dw[key] = 1
        s.live.pop((t, e), None)
        data = tuple((s.slot(i, targets[i]), values[i]) for i in slices)
        for k, v in data:
            s.through(k, v)
        body = (s.seq[t], p, tuple((i, targets[i]) for i in slices), data)
        s.through(f'b{t}{e}', body)
        s.through(f'h{t}{e}', ('is', s.seq[t]))
        s.drain()
        s.store('w' + p, s.moved(p, slices))
        s.live[(t, e)] = (s.seq[t], tuple(slices), p)
        s.dw[(t, e)] = 0

    def others(s, moved):
        """What every way but a logged flip does first: write back and invalidate."""
        named = s.named(moved)
        if s.write_back(named):
            s.drain()
        s.invalidate(named)
        return named

    def copy_in(s, values):
        for i, v in sorted(values.items()):
            s.through(s.slot(i, 1 - s.side(i)), v)

    def flip(s, values, between=None):
        """`between`: steps of another thread before the first drain."""
        slices = sorted(values)
        p = PAGE[slices[0]]
        s.others(slices)
        kept = s.keep(slices, not mut('keep_with_word'))
        s.copy_in(values)
        s.gap()
        if between:
            s.beside(between)
        s.drain()
        s.through('w' + p, s.moved(p, slices))
        s.flush_records(kept if mut('keep_with_word') else [])
        s.drain()

    def fail(s, values):
        """A flip that fails after its first store to a free slot. It drains before it unlocks."""
        slices = sorted(values)
        s.others(slices)
        s.keep(slices, note=not mut('fail_unnoted'))
        s.copy_in(values)
        if not mut('fail_noted', 'fail_unnoted'):
            s.drain()

    def pair(s, a, b):
        """A flip of another page, in which one by another thread begins and ends."""
        before, both = s.now, s.then
        one = tuple(b.get(i, v) for i, v in enumerate(before))

        def other():
            s.segment = 1
            s.allowed = {before, one}
            s.flip(b)
            s.allowed = {one, both}
            s.segment = 0
        s.flip(a, other)

    def region_flip(s, values):
        """Whole pages of the region, by one store of the region word."""
        slices = sorted(values)
        s.others(slices)
        kept = [] if mut('region_no_keep') else s.keep(slices, not mut('region_keep_late'))
        s.copy_in(values)
        s.drain()
        s.through('r', s.flipped_bits(sorted({PAGE[i] for i in slices})))
        s.flush_records(kept)
        s.drain()

    def flipped_bits(s, pages):
        return tuple(1 - b if p in pages else b for p, b in zip(PAGES, s.cur('r')))

    def write_record(s, body):
        """Into the lane's place for an undo record or a redo record. A crash may tear it."""
        s.nundo += 1
        s.through('ub', (s.nundo, body))
        s.through('uh', s.nundo)

    def multi(s, values):
        """Slices of several pages, by an undo record. Page Q moves by its region bit."""
        slices = sorted(values)
        pages = sorted({PAGE[i] for i in slices})
        s.others(slices)
        kept = s.keep(slices, not mut('undo_keep_late'))
        s.copy_in(values)
        words = {('r' if p == 'Q' else 'w' + p): (s.flipped_bits([p]) if p == 'Q' else
                                                 s.moved(p, slices)) for p in pages}
        s.write_record(('undo', tuple((k, s.cur(k)) for k in words)))
        s.drain()
        for k, v in words.items():
            s.through(k, v)
        s.drain()
        s.through('uh', None)
        s.flush_records(kept)
        if not mut('undo_end_undrained'):
            s.drain()

    def redo(s, values, length=None):
        """Slices of pages whose home slots a view pins. Those that are valid in the reflection file
        have no free slot: they stay. The others flip there. `length`: the new one."""
        slices = sorted(values)
        pages = sorted({PAGE[i] for i in slices})
        stays = [i for i in slices if s.side(i) == 1]
        flips = [i for i in slices if s.side(i) == 0]
        cut = s.past(length) if length and length < s.cur('N') else []
        # Steps 1 and 2. What is kept is durable before the record that commits.
        named = s.others(slices)
        kept = [] if mut('redo_stays_unkept') else s.keep(
            stays, not mut('redo_keep_with_record', 'redo_keep_late'))
        if not mut('redo_flips_unkept'):
            kept += s.keep(flips, not mut('redo_keep_with_record', 'redo_keep_late'))
        if not mut('redo_cut_no_keep'):
            late = mut('redo_cut_with_record', 'redo_cut_keep_late')
            kept += s.keep(cut, not late)
        for i in flips:
            s.through(s.slot(i, 1), values[i])
        force = bool(kept) and not mut('redo_keep_with_record', 'redo_cut_with_record')
        if ((named and not mut('redo_no_drain')) or (flips and not mut('redo_flips_no_drain'))
                or force):
            s.drain()
        # Steps 3 and 4.
        if mut('redo_keep_with_record', 'redo_cut_with_record'):
            s.flush_records(n for n in kept if n in s.pend)
        items = tuple((p, tuple((i, values[i]) for i in stays if PAGE[i] == p),
                       tuple((i, b) for i, b in zip(OF[p], s.moved(p, flips)) if i in flips))
                      for p in pages)
        s.write_record(('redo', length, items))
        s.drain()
        # Steps 5 to 8.
        if mut('redo_keep_late'):
            s.flush_records(n for n in kept if n in s.pend)
        for i in stays:
            s.through(s.slot(i, 1), values[i])
        for p in pages:
            s.through('w' + p, s.moved(p, [i for i in flips if PAGE[i] == p]))
        if length:
            s.through('N', length)
        s.drain()
        s.through('uh', None)
        if mut('redo_cut_keep_late'):
            s.flush_records(n for n in kept if n in s.pend)
        s.drain()
        if length and length < 3:
            s.clean_up(length)

    def direct(s, i, v):
        """A direct store (Ram)."""
        kept = [] if mut('direct_no_keep') else s.keep([i], not mut('direct_keep_late'))
        s.gap()
        if kept and not mut('direct_undrained', 'direct_keep_late'):
            s.drain()
        s.through(s.slot(i, s.side(i)), v)
        s.drain()
        s.flush_records(n for n in kept if n in s.pend)
        s.drain()

    # ---- deployment ------------------------------------------------------------------------------

    def deploy(s, p, punch=False, seal_at=0):
        """Copies a page home. It is not inside the gate: a seal may come at each of its steps. A
        snapshot reads valid slots and records only, so reflection slots can be punched."""
        def at(step):
            if step == seal_at:
                s.beside(s.seal)
        away = [i for i in OF[p] if s.side(i)]
        if away:
            s.others(away)
            at(1)
            for i in away:
                s.through(s.slot(i, 0), s.cur(s.slot(i, 1)))
            at(2)
            s.drain()
            if not any(s.word(p)):
                s.through('r', s.flipped_bits([p]))   # the region bit alone has moved the page
            else:
                s.through('w' + p, (s.bit(p),) * len(OF[p]))
            at(3)
            s.drain()
        if punch:
            for i in OF[p]:
                s.store(s.slot(i, 1), 'hole')
            at(4)

    def close(s):
        """A spatial close, and the file opened again: all at home, a new reflection file."""
        for p in PAGES:
            if within(p, s.cur('N')):
                s.deploy(p)
        s.drain()
        s.write_back(s.named(PAGE))
        s.drain()
        for k in [k for k in s.c if k[0] == 'R']:
            s.c[k] = ('hole',)
        for p in PAGES:
            s.c['w' + p] = ((0,) * len(OF[p]),)
        s.c['r'] = ((0, 0),)
        s.boot()

    # ---- lengths ---------------------------------------------------------------------------------

    def past(s, length):
        """The slices that a shrink zeroes or cuts, and that are not zero."""
        slices = [2] if s.cur('N') == 3 else []
        if length == 1 and not mut('cut_page_forgotten'):
            slices += [1] if mut('cut_slice_forgotten') else [0, 1]
        return [i for i in slices if s.bytes_of(i) != 0 or mut('cut_keeps_zeroes')]

    def cut(s, length):
        late = mut('cut_keep_late', 'cut_keep_undrained')
        if length >= s.cur('N'):
            return
        kept = [] if mut('cut_no_keep') else s.keep(s.past(length), not late)
        if kept and not late:
            s.drain()
        if mut('seal_in_shrink') and s.table()[1] < cfg.seals:
            s.beside(s.seal)
        if mut('write_in_shrink') and s.cur('N') == 3 and not s.rolling:
            s.v += 1
            more = s.now[:2] + (s.v,)
            s.allowed = {s.now, more}
            s.flip({2: s.v})
            s.allowed = {more, s.then}
        s.through('N', length)
        if mut('cut_keep_undrained'):
            s.flush_records(kept)
        s.drain()
        s.flush_records(n for n in kept if n in s.pend)
        s.clean_up(length)

    def fail_cut(s, length):
        """A shrink that fails before its commit point."""
        s.keep(s.past(length))
        s.drain()

    def clean_up(s, length):
        """Zeroes what is past the length. Records about a page that it cuts are invalidated."""
        s.others([2] if length == 2 else list(PAGE))
        s.drain()
        for k, v in cleaned(length, s.cur).items():
            s.through(k, v)
        s.drain()

    def grow(s, length):
        s.through('N', length)
        s.drain()

    # ---- snapshots -------------------------------------------------------------------------------

    def table(s):
        return s.cur('T')

    def go_by(s, table):
        """Under the closed gate: operations go by this table now."""
        s.dram = table

    def sealed(s, intention=None):
        """The next number, and the table with it."""
        live, top, _ = s.table()
        k = top + 1
        if mut('number_again'):
            k = 1 + max((a for a, _ in live), default=0)
        s.snaps[k] = s.ever[k] = s.now
        s.may = k
        return k, (live + ((k, s.cur('N')),), top + 1, intention)

    def seal(s):
        _, table = s.sealed()
        s.through('T', table)
        if not mut('seal_undrained'):
            s.drain()
        s.may = 0
        s.go_by(table)

    def drop(s, k, value=None):
        """`value`: what another thread writes to slice 0 while the table is not durable."""
        live, top, _ = s.table()
        table = (tuple(x for x in live if x[0] != k), top, None)
        s.may = k
        s.through('T', table)
        if mut('free_first'):
            s.free()
        if mut('drop_l_early'):
            s.go_by(table)
        if value:
            before, s.allowed = s.now, {s.now, s.then}
            s.segment = 1
            s.beside(lambda: s.flip({0: value}))
            s.segment = 0
            s.allowed = {s.then}
        s.drain()
        s.may = 0
        del s.snaps[k]
        if not mut('drop_l_early'):
            s.go_by(table)
        if not mut('free_nothing'):
            s.free()
        if mut('free_own'):
            s.medium = {n: r for n, r in s.medium.items() if r[0] != k}
            s.index = list(s.medium.values())

    def rollback(s, k):
        """The undo snapshot and the intention are one table."""
        u, table = s.sealed(None if mut('no_intention') else k)
        if mut('undo_after_intention'):
            s.through('T', (table[0][:-1], table[1] - 1, k))
            s.drain()
        s.undo = u
        s.through('T', table)
        if not mut('intention_late'):
            s.drain()
        s.may = 0
        s.go_by(table)
        s.rolling = True
        s.roll_on(k)
        s.undo = 0
        if mut('intention_end_undrained'):
            # Another thread writes before the intention is gone.
            s.now, s.v = s.then, s.v + 1
            s.then = (s.v,) + s.now[1:]
            s.allowed = {s.now, s.then}
            s.beside(lambda: s.flip({0: s.v}))
            s.allowed = {s.then}
            s.check(s)

    def roll_on(s, k):
        """Also at an opening: it begins anew, by what it finds."""
        s.rolling = True
        length = dict(s.table()[0])[k]
        want = s.read_snapshot(k, length)
        if length < s.cur('N'):
            s.cut(length)
        elif length > s.cur('N'):
            s.grow(length)
        ended = (s.table()[0], s.table()[1], None)
        for p in PAGES:
            diff = {i: want[i] for i in OF[p] if within(p, length) and want[i] != s.bytes_of(i)}
            if diff:
                if mut('intention_early') and p == ('Q' if length == 3 else 'P'):
                    s.through('T', ended)
                s.flip(diff)
        s.through('T', ended)
        if not mut('intention_end_undrained'):
            s.drain()
        s.dram = ended
        s.rolling = False

    # ---- operations ------------------------------------------------------------------------------

    def can(s, op):
        name, x = op[0], op[1]
        live, top, _ = s.table()
        n = s.cur('N')
        if name == 'seal':
            return top < cfg.seals
        if name in ('drop', 'drop_beside'):
            return len(live) >= {'oldest': 1, 'middle': 3, 'newest': 2}[x]
        if name in ('cut', 'fail_cut'):
            return x < n
        if name == 'grow':
            return x > n
        if name == 'roll':
            return len(live) > (x == 'newest') and top < cfg.seals
        if name == 'close':
            return True
        if name in ('deploy', 'punch'):
            return within(x, n)
        if name == 'deploy_seal':
            return within(x, n) and top < cfg.seals and any(map(s.side, OF[x]))
        if name == 'resize':
            return op[2] != n and all(i < op[2] for i in x)
        return all(i < n for i in x)

    WRITES = ('logged_flip', 'flip', 'region', 'multi', 'redo', 'direct', 'resize', 'fail', 'pair')

    def run(s, op):
        name, x = op[0], op[1]
        live = [k for k, _ in s.table()[0]]
        k = 0
        if x in ('oldest', 'middle', 'newest'):
            k = {'oldest': live[0], 'middle': live[len(live) // 2], 'newest': live[-1]}[x]
        values = {}
        state = list(s.now)
        length = x if name in ('cut', 'grow') else op[2] if name == 'resize' else s.cur('N')
        if length == 3 and state[2] is None:
            state[2] = 0
        if name == 'roll':
            state = list(s.snaps[k])
        elif name in s.WRITES or name == 'drop_beside':
            for i in x if name in s.WRITES else (0,):
                s.v += 1
                values[i] = first_half(s.v) if s.cur('N') == length == 1 else s.v
                state[i] = values[i] if name != 'fail' else state[i]
        if name != 'roll' and length < 3:
            state[:2] = cut_content('P', tuple(state[:2]), length)
            state[2] = None
        s.then = tuple(state)
        s.allowed = {s.now, s.then}
        if name == 'logged_flip':
            s.logged_flip(values, op[2])
        elif name in ('flip', 'multi', 'redo', 'fail'):
            getattr(s, name)(values)
        elif name == 'pair':
            s.pair({x[0]: values[x[0]]}, {x[1]: values[x[1]]})
        elif name == 'region':
            s.region_flip(values)
        elif name == 'resize':
            s.redo(values, length)
        elif name == 'direct':
            s.direct(x[0], values[x[0]])
        elif name in ('deploy', 'punch'):
            s.deploy(x, name == 'punch')
        elif name == 'deploy_seal':
            s.deploy(x, True, op[2])
        elif name in ('cut', 'fail_cut', 'grow'):
            getattr(s, name)(x)
        elif name in ('drop', 'drop_beside'):
            s.drop(k, values.get(0))
        elif name == 'roll':
            s.rollback(k)
        else:
            getattr(s, name)()
        s.now = s.then
        s.allowed = {s.now}
        s.check(s)
