"""A part of `snapshots_dax_lazy.py`: each operation in its steps.

Nothing here can be run by itself.
"""
from snapshots_dax_lazy_machine import Machine
from snapshots_dax_lazy_recovery import (OF, PAGE, PAGES, cfg, cleaned, cut_content, first_half,
                                    generation, live_of, mut, needed, source, within)


class Sim(Machine):
    # ---- writes ----------------------------------------------------------------------------------

    def logged_flip(s, values, t):
        slices = sorted(values)
        p = PAGE[slices[0]]
        if any(lane != t for lane, _ in s.named(slices)):
            return s.flip(values)
        bases = s.first([p], [(i, 1 - s.side(i)) for i in slices])
        if bases:
            s.base(p)
        s.keep_now(slices)
        if mut('no_gate') and not bases and len(s.table()) < cfg.seals:
            s.seal()
        targets = {i: 1 - s.side(i) for i in slices}
        s.seq[t] += 1
        e = s.seq[t] % cfg.ring
        batch = cfg.ring // 2
        if s.seq[t] % batch == batch - 1:
            for key, (_, _, page) in s.live.items():
                if key[0] == t and s.dw[key] == 0:
                    s.flush_page(page, not mut('sum_not_flushed'))
                    s.dw[key] = 1
        s.live.pop((t, e), None)
        data = tuple((s.slot(i, targets[i]), values[i]) for i in slices)
        for k, v in data:
            s.through(k, v)
        at, sum_ = s.new_sum(p, s.content(p, s.then))
        gen = generation(s.table()) if bases and not mut('flip_no_gen') else 0
        body = (s.seq[t], p, tuple((i, targets[i]) for i in slices), data, gen,
                None if mut('sum_not_in_flip') else sum_)
        s.through(f'b{t}{e}', body)
        s.through(f'h{t}{e}', ('is', s.seq[t]))
        if mut('sum_not_in_flip'):
            s.through(at, sum_)
        s.drain()
        s.store('w' + p, s.moved(p, slices))
        s.store(at, sum_)
        s.live[(t, e)] = (s.seq[t], tuple(slices), p)
        s.dw[(t, e)] = 0
        s.published(p, slices)

    def published(s, p, slices):
        if not mut('sum_one_place'):
            s.place[p] = 1 - s.place[p]
        s.handed(p, slices)

    def others(s, moved, over):
        """What every way but a logged flip does first: write back, keep, invalidate."""
        named = s.named(moved)
        new = s.first(sorted({PAGE[i] for i in moved}), over, more=s.write_back(named))
        s.invalidate(named)
        return new

    def store_sum(s, p, content):
        at, sum_ = s.new_sum(p, content)
        s.store(at, sum_)
        if not mut('sum_late'):
            s.flush(at)
        return at

    def flip(s, values, swap=()):
        """`swap`: slices whose other slot holds these bytes, and still does when they count."""
        slices = sorted(values)
        p = PAGE[slices[0]]
        new = s.others(slices, [(i, 1 - s.side(i)) for i in slices if i not in swap])
        late = [s.base(q, not mut('base_late')) for q in new]
        s.keep_now(slices)
        for i in slices:
            if i not in swap:
                s.through(s.slot(i, 1 - s.side(i)), values[i])
        at = s.store_sum(p, s.content(p, s.then))
        s.drain()
        s.through('w' + p, s.moved(p, slices))
        s.flush(at)
        for n in late:
            if mut('base_late'):
                s.fl[f'k{n}'] = 1
        s.drain()
        both = s.other[p] & frozenset(swap)
        s.published(p, slices)
        s.valid[p] |= both if not mut('swap_not_owed') else frozenset()

    def region_flip(s, values):
        """Whole pages of the region, by one store of the region word."""
        slices = sorted(values)
        pages = sorted({PAGE[i] for i in slices})
        new = s.others(slices, [(i, 1 - s.side(i)) for i in slices])
        if not mut('region_no_base'):
            s.base_run(new, pages)
        s.keep_now(slices)
        for i in slices:
            s.through(s.slot(i, 1 - s.side(i)), values[i])
        sums = [s.store_sum(p, s.content(p, s.then)) for p in pages]
        s.drain()
        s.through('r', s.flipped_bits(pages))
        for at in sums:
            s.flush(at)
        s.drain()
        for p in pages:
            s.published(p, () if mut('region_masks') else OF[p])

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
        new = s.others(slices, [(i, 1 - s.side(i)) for i in slices])
        late = [] if mut('undo_base_last') else [s.base(p, not mut('base_late')) for p in new]
        s.keep_now(slices)
        for i in slices:
            s.through(s.slot(i, 1 - s.side(i)), values[i])
        sums = [s.store_sum(p, s.content(p, s.then)) for p in pages]
        words = {('r' if p == 'Q' else 'w' + p): (s.flipped_bits([p]) if p == 'Q' else
                                                 s.moved(p, slices)) for p in pages}
        s.write_record(('undo', tuple((k, s.cur(k)) for k in words)))
        s.drain()
        for k, v in words.items():
            s.through(k, v)
        for at in sums:
            s.flush(at)
        for n in late:
            if mut('base_late'):
                s.fl[f'k{n}'] = 1
        s.drain()
        s.through('uh', None)
        if mut('undo_base_last'):
            # With the validity of before, but only with the end of the record.
            for p in new:
                was = tuple(1 - b if i in slices else b for i, b in zip(OF[p], s.validity(p)))
                s.append(s.newest(p), p, was, s.base_sum(p), {})
        if not mut('undo_end_undrained'):
            s.drain()
        for p in pages:
            s.published(p, slices)

    def redo(s, values, length=None):
        """Slices of pages whose home slots a view pins. Those that are valid in the reflection file
        have no free slot: they stay. The others flip there. `length`: the new one."""
        slices = sorted(values)
        pages = sorted({PAGE[i] for i in slices})
        stays = [i for i in slices if s.side(i) == 1]
        flips = [i for i in slices if s.side(i) == 0]
        cut = s.slots_past(length) if length and length < s.cur('N') else []
        if mut('redo_cut_no_keep', 'redo_cut_keep_late'):
            cut = []
        touched = sorted({PAGE[i] for i, _ in cut} | set(pages))
        named = s.named(slices)
        new = s.first(touched, [(i, 1) for i in flips], more=s.write_back(named))
        # Steps 1 and 2. What is appended here is durable before the record that commits.
        for i in flips:
            s.through(s.slot(i, 1), values[i])
        s.invalidate(named)
        late = mut('redo_base_with_record')
        for p in new:
            if not late:
                s.base(p)
        over = [(i, 1) for i in stays] + cut
        kept = not mut('redo_keep_with_record', 'redo_keep_late') and s.keep(over)
        if ((named and not mut('redo_no_drain')) or (flips and not mut('redo_flips_no_drain'))
                or (new and not late) or kept):
            s.drain()
        for p in new:
            if late and not s.has_base(p):
                s.base(p)
        if mut('redo_keep_with_record'):
            s.keep(over)
        # Steps 3 and 4.
        items = tuple((p, tuple((i, values[i]) for i in stays if PAGE[i] == p),
                       tuple((i, b) for i, b in zip(OF[p], s.moved(p, flips)) if i in flips))
                      for p in pages)
        sums = []
        for p in pages:
            if length and not within(p, length):
                continue
            want = s.content(p, s.then)
            if mut('redo_cut_sum') and length == 1:
                want = tuple(values.get(i, v) for i, v in zip(OF[p], s.content(p)))
            sums.append((p,) + s.new_sum(p, want))
        in_record = () if mut('sum_not_in_redo') else tuple((p, sum_) for p, _, sum_ in sums)
        s.write_record(('redo', length, items, in_record))
        if mut('sum_not_in_redo'):
            for _, at, sum_ in sums:
                s.through(at, sum_)
        s.drain()
        # Steps 5 to 8.
        if mut('redo_keep_late'):
            s.keep(over)
        for i in stays:
            s.through(s.slot(i, 1), values[i])
        for p in pages:
            s.through('w' + p, s.moved(p, [i for i in flips if PAGE[i] == p]))
        for _, at, sum_ in sums:
            s.through(at, sum_)
        if length:
            s.through('N', length)
        if length == 1 and not mut('redo_cut_unflushed'):
            s.flush_page('P')                     # both places of the page that the length cuts
        s.drain()
        s.through('uh', None)
        s.drain()
        for p in pages:
            if length and not within(p, length):
                continue
            s.published(p, slices if mut('redo_hands_stays') else
                        [i for i in flips if PAGE[i] == p])
            s.valid[p] -= frozenset(stays)
        if length and length < 3:
            if mut('redo_cut_keep_late'):
                s.keep(s.slots_past(length, 3))
            s.clean_up(length)

    def direct(s, i, v):
        """A direct store (Ram), unless a snapshot reads the valid slot: then a flip."""
        p = PAGE[i]
        s.open_page(p)
        if i in s.valid[p] and not mut('keep_by_name'):
            return s.flip({i: v})
        at, sum_ = s.new_sum(p, s.content(p, s.then))
        s.through(at, sum_)
        s.drain()
        s.through(s.slot(i, s.side(i)), v)
        s.drain()
        s.published(p, ())

    # ---- deployment ------------------------------------------------------------------------------

    def deploy(s, p, punch):
        """Copies a page home. Bases that name the reflection slot of a slice which is as it was are
        said anew, with the word: both slots hold these bytes."""
        away = [i for i in OF[p] if s.side(i)]
        if away:
            named = s.named(away)
            more = s.write_back(named)
            bases, now = s.bases(p), s.validity(p)
            by_change = [i for i in away for k, n in live_of(s.table()) if within(p, n)
                         for what, side, e in [source(bases, now, k, i)]
                         if (what, side) == ('slot', 1) and e is not None]
            over = [] if mut('deploy_over') else [(i, 0) for i in away]
            over += [] if mut('home_by_change') else [(i, 1) for i in dict.fromkeys(by_change)]
            if s.keep(over) or more:
                s.drain()
            s.invalidate(named)
            new = s.said_anew(p, away)
            if mut('rebase_early'):
                for e, (word, sum_) in new.items():
                    s.append(e, p, word, sum_, {})
                s.drain()
            for i in away:
                s.through(s.slot(i, 0), s.cur(s.slot(i, 1)))
            s.drain()
            if not any(s.word(p)):
                s.through('r', s.flipped_bits([p]))   # the region bit alone has moved the page
            else:
                s.through('w' + p, (s.bit(p),) * len(OF[p]))
            if not mut('rebase_early'):
                for e, (word, sum_) in new.items():
                    s.append(e, p, word, sum_, {})
            s.drain()
            s.other[p] -= frozenset(away)
        if punch:
            for i in OF[p]:
                if i not in s.other[p] or mut('punch_owed'):
                    s.store(s.slot(i, 1), 'hole')

    def said_anew(s, p, away):
        bases, new = s.bases(p), {}
        for n, (e, word, kept, sum_) in enumerate(bases):
            back = {i for at, i in enumerate(OF[p]) if i in away and i not in kept
                    and all(b[1][at] == 1 and (i not in b[2] or mut('rebase_kept'))
                            for b in bases[n:])}
            if back and not mut('no_rebase') and (not mut('rebase_one') or n + 1 == len(bases)):
                new[e] = (tuple(0 if i in back else b for i, b in zip(OF[p], word)), sum_)
        return new

    def ahead(s, p):
        """In the background: what is owed of a page is kept before an operation has to."""
        if s.keep([(i, 1 - s.side(i)) for i in OF[p]]):
            s.drain()

    def close(s):
        """A spatial close, and the file opened again: all at home, a new reflection file."""
        for p in PAGES:
            if not mut('close_no_keep'):
                s.ahead(p)
            if within(p, s.cur('N')):
                s.deploy(p, False)
        s.drain()
        s.write_back(s.named(PAGE))
        s.drain()
        for k in [k for k in s.c if k[0] == 'R']:
            s.c[k] = ('hole',)
        for p in PAGES:
            s.c['w' + p] = ((0,) * len(OF[p]),)
        s.c['r'] = ((0, 0),)
        s.boot_lanes()

    # ---- lengths ---------------------------------------------------------------------------------

    def slots_past(s, length, now=None):
        """Both slots of all slices that a shrink zeroes or cuts."""
        now = s.cur('N') if now is None else now
        slices = [2] if now == 3 else []
        if length == 1 and not mut('cut_page_forgotten'):
            slices += [1] if mut('cut_slice_forgotten') else [0, 1]
        sides = (0, 1)
        return [(i, x) for i in slices for x in sides
                if not (mut('cut_other_forgotten') and x != s.side(i))]

    def cut(s, length):
        now = s.cur('N')
        if length >= now:
            return
        over = s.slots_past(length, now)
        if not mut('cut_no_keep', 'cut_keep_late'):
            for p in s.first(sorted({PAGE[i] for i, _ in over}), []):
                s.base(p)
            s.keep(over)
        if mut('seal_in_shrink') and len(s.table()) < cfg.seals:
            s.drain()
            s.seal()
        at = None
        if length == 1:
            # The page that the length cuts: its sum afterwards is there before the length.
            have = tuple(s.cur(s.slot(i, s.side(i))) for i in OF['P'])
            at, sum_ = s.new_sum('P', cut_content('P', have, 1))
            if not mut('cut_sum_late'):
                s.through(at, sum_)
            if not mut('cut_unflushed'):
                s.flush_page('P')                 # both places
        s.drain()
        s.through('N', length)
        s.drain()
        if mut('cut_keep_late'):
            s.first(['Q'] if now == 3 else ['P'], over)
            s.drain()
        if at and mut('cut_sum_late'):
            s.through(at, sum_)
        if at:
            s.prev['P'] |= {cut_content('P', have, 1)}
            s.place['P'] = 1 - s.place['P'] if not mut('sum_one_place') else s.place['P']
        s.clean_up(length)

    def clean_up(s, length):
        """Zeroes what is past the length. Records about a page that it cuts are invalidated."""
        named = s.named([2] if length == 2 else list(PAGE))
        if s.write_back(named):
            s.drain()
        s.invalidate(named)
        s.drain()
        for k, v in cleaned(length, s.cur).items():
            s.through(k, v)
        s.drain()
        s.place['Q'] = 0
        for i in [2] + [0, 1] * (length == 1):
            s.other[PAGE[i]] -= {i}
            s.valid[PAGE[i]] -= {i}

    def grow(s, length):
        s.through('N', length)
        s.drain()

    # ---- snapshots -------------------------------------------------------------------------------

    def seal(s):
        t = s.table()
        if mut('number_again'):
            k = 1 + max((k for k, state, _ in t if state == 'sealed'), default=0)
            t = tuple(x for x in t if x[0] < k)
        else:
            k = len(t) + 1
        s.snaps[k] = s.now
        s.through('T', t + ((k, 'sealed', s.cur('N')),))
        s.may = k
        if not mut('seal_undrained'):
            s.drain()
        s.may = None

    def drop(s, k):
        t = tuple((a, 'dropped' if a == k else state, n) for a, state, n in s.table())
        s.may = k
        if mut('free_first'):
            s.recs = [r for r in s.recs if needed(t, r[0])]
        s.through('T', t)
        s.drain()
        s.may = None
        del s.snaps[k]
        s.recs = [r for r in s.recs if needed(t, r[0]) and not (mut('free_own') and r[0] == k)]

    def read_snapshot(s, k, length):
        return tuple(
            None if not within(PAGE[i], length) else where if what == 'rec'
            else s.cur(s.slot(i, where))
            for i in PAGE
            for what, where, _ in [source(s.bases(PAGE[i]), s.validity(PAGE[i]), k, i)])

    def rollback(s, k):
        if not mut('no_intention'):
            s.through('I', k)
            if not mut('intention_late'):
                s.drain()
        s.roll_on(k)

    def roll_on(s, k):
        length = next(n for a, _, n in s.table() if a == k)
        want = s.read_snapshot(k, length)
        final = s.then
        if length < s.cur('N'):
            s.cut(length)
        elif length > s.cur('N'):
            s.grow(length)
        have = tuple(s.cur(s.slot(i, s.side(i))) for i in PAGE)
        for p in PAGES:
            diff = {i: want[i] for i in OF[p] if within(p, length) and want[i] != have[i]}
            if diff:
                swap = [i for i in diff
                        for what, where, _ in [source(s.bases(p), s.validity(p), k, i)]
                        if (what, where) == ('slot', 1 - s.side(i))]
                s.now = tuple(have[i] if i in OF[p] else final[i] for i in PAGE)
                if mut('intention_early') and p == ('Q' if length == 3 else 'P'):
                    s.through('I', None)
                s.flip(diff, swap)
        s.now = final
        if not mut('no_intention'):
            s.through('I', None)
        s.drain()

    # ---- operations ------------------------------------------------------------------------------

    def can(s, op):
        name, x = op[0], op[1]
        live = live_of(s.table())
        n = s.cur('N')
        if name == 'seal':
            return len(s.table()) < cfg.seals
        if name == 'drop':
            return {'oldest': len(live) >= 1, 'middle': len(live) >= 3, 'newest': len(live) >= 2}[x]
        if name == 'cut':
            return x < n
        if name == 'grow':
            return x > n
        if name == 'roll':
            return bool(live)
        if name == 'close':
            return True
        if name in ('deploy', 'punch', 'ahead'):
            return within(x, n)
        if name == 'resize':
            return op[2] != n and all(i < op[2] for i in x)
        return all(i < n for i in x)

    def run(s, op):
        name, x = op[0], op[1]
        live = [k for k, _ in live_of(s.table())]
        values = {}
        was = s.now
        state = list(s.now)
        length = x if name in ('cut', 'grow') else op[2] if name == 'resize' else s.cur('N')
        if length == 3 and state[2] is None:
            state[2] = 0
        if name == 'roll':
            state = list(s.snaps[live[0]])
        elif name in ('logged_flip', 'flip', 'region', 'multi', 'redo', 'direct', 'resize'):
            for i in x:
                s.v += 1
                values[i] = first_half(s.v) if s.cur('N') == length == 1 else s.v
                state[i] = values[i]
        if name != 'roll' and length < 3:
            state[:2] = cut_content('P', tuple(state[:2]), length)
            state[2] = None
        s.then = tuple(state)
        s.allowed = {s.now, s.then}
        s.early = []
        if name == 'roll' and was[2] is None:
            s.prev['Q'] |= {(0,)}                 # it grows first
        if name == 'logged_flip':
            s.logged_flip(values, op[2])
        elif name in ('flip', 'multi', 'redo'):
            getattr(s, name)(values)
        elif name == 'region':
            s.region_flip(values)
        elif name == 'resize':
            s.redo(values, length)
        elif name == 'direct':
            s.direct(x[0], values[x[0]])
        elif name in ('deploy', 'punch'):
            s.deploy(x, name == 'punch')
        elif name in ('ahead', 'cut', 'grow'):
            getattr(s, name)(x)
        elif name == 'drop':
            s.drop({'oldest': live[0], 'middle': live[len(live) // 2], 'newest': live[-1]}[x])
        elif name == 'roll':
            s.rollback(live[0])
        else:
            getattr(s, name)()
        for p in PAGES:
            if s.content(p, was) != s.content(p, s.then):
                s.prev[p] = frozenset({s.content(p, was)}) | (
                    {(0,)} if was[2] is None and p == 'Q' else frozenset()) | (
                    s.prev[p] if name in ('roll', 'resize') else frozenset())
        s.now = s.then
        s.allowed = {s.now}
        s.check(s)
