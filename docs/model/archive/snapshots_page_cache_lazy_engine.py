"""The machine and the engine of `snapshots_page_cache_lazy.py`: files, operations, closes, recovery.

Each operation is a generator that yields where the process may die. `MUT` names the rule that is
left out. `snapshots_page_cache_lazy.py` says what is checked, and sets `MUT`, `SEALS` and `DAX`.
"""
from snapshots_page_cache_lazy_machine import OF, PAGE, PAGES, Bad, Machine, S, live_of, needed, within

MUT = 'none'
PLACES = 2                                        # places of a new journal
MOST = 3                                          # and of one that has grown
AT_MOST = 3                                       # slices of a record, with those that are kept
SEALS = 3
DAX = False                                       # a change of the length syncs both files


class Sim(Machine):
    def __init__(s):
        Machine.__init__(s, PLACES, MOST)
        s.boot(3, (), ())

    def boot(s, length, table, kept):
        """What DRAM knows after an opening."""
        s.dur = {p: s.cur('D' + p) for p in PAGES}
        s.dlen = length
        s.n = 0
        s.used = ()                               # (number, place) of the records that are needed
        s.table = table
        s.kept = kept                             # all that is kept: (epoch, page, sum, slices)
        s.jkept = ()                              # what of that only the journal has
        s.force = s.rest = False                  # a flush is due; the rest is zero on the disk
        s.pd = {p: 0 for p in PAGES}              # the place of the durable point's sum
        s.vp = {p: 0 for p in PAGES}              # the place of the working state's sum
        s.homed = frozenset()                     # brought home, and not written since

    def raise_floor(s):
        """The reflection file says which number the store has at least. It is durable there."""
        if MUT != 'floor_not_raised':
            s.store('F', s.cur('G'))

    def newest(s, p):
        """L(p): the newest live snapshot that reaches the page."""
        if MUT == 'kept_by_newest_number':
            is_live = s.table and s.table[-1][1] == 'sealed' and within(p, s.table[-1][2])
            return s.table[-1][0] if is_live else 0
        return max((k for k, n in live_of(s.table) if within(p, n)), default=0)

    def find(s, k, i):
        """The bytes of slice i in snapshot k."""
        p = PAGE[i]
        ours = (r for r in s.kept if r[1] == p and r[0] >= k)
        for e, _, _, kept in sorted(ours, key=lambda r: r[0]):
            if i in dict(kept) and not (MUT == 'reader_one_epoch' and e != k):
                return dict(kept)[i]
        words = s.word(p) if MUT == 'reader_valid' else s.dur[p]
        return s.cur(s.slot(i, words[OF[p].index(i)]))

    def snapshot(s, k, length):
        out = []
        for p in PAGES:
            got = [s.find(k, i) if i < length else 0 for i in OF[p]]
            ours = (r for r in s.kept if r[1] == p and r[0] >= k)
            first = min(ours, key=lambda r: r[0], default=None)
            if within(p, length) and first and first[2] != S(p, got):
                raise Bad(f'the sum of {p} of snapshot {k} does not match: {first[2]}, {got}')
            out += [v if i < length else None for i, v in zip(OF[p], got)]
        return tuple(out)

    # ---- operations ------------------------------------------------------------------------------

    def write(s, values, length=None):
        """Redo, or a flip where no slice stays, with a new length or without."""
        flips = [i for i in values if s.side(i) == s.dside(i)]
        stays = [i for i in values if i not in flips]
        pages = {PAGE[i] for i in values}
        end = s.cur('N') if length is None else length
        if end < s.cur('N') and end in OF['P']:
            pages.add('P')                        # the end cuts it in two: its sum changes
        if MUT != 'homed_stays':
            s.homed -= frozenset(values)
        for i in flips:
            slot = s.slot(i, 1 - s.side(i))
            s.store(slot, ('torn', values[i])); yield
            s.store(slot, values[i]); yield
        sums, changed, words = [], False, []
        for p in sorted(pages):
            changed |= s.vp[p] != s.pd[p]
            at = s.pd[p] if MUT == 'sum_over_durable' else 1 - s.pd[p]
            old = s.content(p, s.word(p), end)
            if MUT != 'sum_over_durable':
                s.vp[p] = at
            sums.append((f's{p}{at}', S(p, [values.get(i, v) for i, v in zip(OF[p], old)])))
            w = tuple(1 - b if i in flips else b for i, b in zip(OF[p], s.word(p)))
            if w != s.word(p):
                words.append(('W' + p, w))
        bytes_ = tuple((s.slot(i, s.side(i)), values[i]) for i in stays)
        lengths = (('N', length),) if length is not None else ()
        entry = stays or len(words) > 1 or (changed and MUT != 'sum_no_entry') or lengths
        if entry and not (MUT == 'cut_sum_no_entry' and not values):
            in_it = () if MUT == 'sum_not_in_entry' else tuple(sums)
            s.store('E', (bytes_, tuple(words), in_it, lengths)); yield
        for slot, v in bytes_:
            s.store(slot, ('torn', v)); yield
            s.store(slot, v); yield
        for k, v in words + sums if MUT == 'sum_word_first' else sums + words:
            s.store(k, v); yield
        for k, v in lengths:
            s.store(k, v); yield
        if s.cur('E') is not None:
            s.store('E', None); yield

    def to_keep(s):
        """What the next durable point would leave to nobody: (epoch, page, sum, slices)."""
        out, n = [], s.cur('N')
        for p in PAGES if MUT != 'no_keep' else ():
            last = s.newest(p)
            if not last:
                continue
            ours = [r for r in s.kept if r[1] == p and r[0] >= last]
            have = {i for r in (s.kept if MUT == 'keep_once' else ours) if r[1] == p
                    for i, _ in r[3]}

            def is_lost(i):
                if n <= i < s.dlen and MUT != 'cut_no_keep':
                    return not within(p, n) or MUT != 'cut_keeps_whole_pages'
                is_home = i in s.homed and MUT != 'homed_kept'
                return within(p, n) and s.side(i) != s.dside(i) and not is_home
            lost = [i for i in OF[p] if i not in have and is_lost(i)]
            if lost:
                sum_ = min(ours, key=lambda r: r[0])[2] if ours else None
                sum_ = sum_ or S(p, s.content(p, s.dur[p], s.dlen))
                side = s.side if MUT == 'keep_valid' else s.dside
                out.append((last, p, sum_, tuple((i, s.cur(s.slot(i, side(i)))) for i in lost)))
        return tuple(out)

    def free_place(s):
        taken = {j for _, j in s.used}
        return next((j for j in range(s.places) if j not in taken), None)

    def to_store(s, kept=()):
        """What only records have goes to the store, with the table. Nothing waits."""
        drops = {'base_drops_kept': bool(kept) or s.in_flush, 'checkpoint_drops_kept': True,
                 'close_drops_kept': s.in_close}.get(MUT, False)
        s.put(kept if drops else kept + s.jkept)
        if not (MUT == 'base_drops_table' and s.in_flush):
            s.put_table(s.table)

    def changed(s):
        n = s.cur('N')
        return [i for i in PAGE if within(PAGE[i], n) and s.side(i) != s.dside(i)]

    def is_small(s, changed, kept):
        """The point goes to the journal: its record has room for what it keeps as well."""
        return not s.force and len(changed) + sum(len(r[3]) for r in kept) <= AT_MOST

    def sync(s, flush, snap, state):
        """A durable point: by a record in the journal, or by a sync of the files and a base."""
        length, changed, kept = s.cur('N'), s.changed(), s.to_keep()
        if not changed and length == s.dlen and not snap:
            s.point = state                       # the last point is this one
            return
        s.began = state
        flush = flush or not s.is_small(changed, kept)
        k = 0
        if snap:
            k = len(s.table) + 1
            s.snaps[k] = state
            s.may = k
        if flush:
            s.in_flush = True
            s.to_store(() if MUT == 'keep_after' else kept)
            s.in_flush = False
            if k and MUT == 'seal_before_record':
                s.put_table(s.table + ((k, 'sealed', length),))
            yield
            if MUT != 'keep_no_store_barrier':
                s.barrier('store'); yield
            s.raise_floor(); yield
            s.barrier('home'); yield
            s.barrier('refl'); yield
            s.used = s.used[-1:]
        elif s.free_place() is None and s.places < MOST:
            s.barrier('journal'); yield
            s.places += 1
        elif s.free_place() is None:
            yield from s.checkpoint()
        n, place = s.n + 1, s.free_place()
        words = {p: s.word(p) if within(p, length) else (0,) for p in PAGES}
        slices, sums = [], []
        for p in PAGES if not flush else ():
            for i in OF[p]:
                if i in changed:
                    slot = s.slot(i, s.side(i))
                    slices.append((slot, s.cur(slot)))
            is_changed = words[p] != s.dur[p] or s.vp[p] != s.pd[p]
            if within(p, length) and is_changed and MUT != 'sum_not_in_record':
                sums.append((p, s.cur(f's{p}{s.vp[p]}')))
        rec = (s.cur('S')[1], n, tuple(words.items()), tuple(slices), flush,
               () if flush else kept, k, length, tuple(sums))
        s.store(f'J{place}', ('torn', n)); yield
        s.store(f'J{place}', rec); yield
        s.barrier('journal'); yield
        if flush and MUT == 'keep_after':
            s.put(kept); yield
            s.barrier('store'); yield
        s.n = n
        s.used = ((n, place),) if flush else s.used + ((n, place),)
        s.dur, s.dlen, s.force = dict(words), length, False
        s.kept += kept
        s.jkept = () if flush else s.jkept + kept
        if k:
            s.table += ((k, 'sealed', length),)
        s.point, s.began, s.may = state, None, None
        if MUT != 'sum_place_stays':
            s.pd = dict(s.vp)
        for p in PAGES:
            s.store('D' + p, words[p]); yield

    def checkpoint(s, beside=0):
        """Syncs all three files. `beside`: another thread makes a point early or late in it."""
        n, taken = s.n, s.jkept
        s.to_store(); yield
        has_room = s.free_place() is not None or s.places < MOST
        may = has_room and s.is_small(s.changed(), s.to_keep())
        if beside == 1 and may:
            yield from s.sync(False, False, s.now)
        if MUT == 'floor_too_early':
            s.raise_floor(); yield
        if MUT != 'checkpoint_no_store_barrier':
            s.barrier('store'); yield
        if MUT not in ('floor_after_sync', 'floor_too_early'):
            s.raise_floor(); yield
        if beside == 2 and may:
            yield from s.sync(False, False, s.now)
        s.barrier('home'); yield
        s.barrier('refl'); yield
        if MUT == 'floor_after_sync':
            s.raise_floor(); yield
        s.used = tuple(u for u in s.used if u[0] >= n)      # the newest record stays
        forgets = MUT == 'checkpoint_forgets_newer'
        s.jkept = () if forgets else tuple(r for r in s.jkept if r not in taken)

    def deploy(s, p):
        for i in OF[p]:
            if s.side(i) == 1 and (s.dside(i) == 1 or MUT == 'deploy_pinned'):
                s.store(s.slot(i, 0), ('torn', 'd')); yield
                s.store(s.slot(i, 0), s.cur(s.slot(i, 1))); yield
                s.homed |= {i}
                s.store('W' + p, tuple(0 if j == i else b for j, b in zip(OF[p], s.word(p)))); yield

    def clean(s):
        """Zeroes what is past the end, of the durable point as well."""
        n = s.cur('N')
        for i, p in PAGE.items():
            if i >= n:
                s.store(f'H{i}', 0)
                s.store(f'R{i}', 0); yield
        if not within('Q', n):
            for k, v in (('WQ', (0,)), ('DQ', (0,)), ('sQ0', S('Q', (0,))), ('sQ1', S('Q', (0,)))):
                s.store(k, v); yield
            s.dur['Q'] = (0,)
            s.pd['Q'] = s.vp['Q'] = 0
        s.rest = False
        yield from s.sync_lengths()

    def sync_lengths(s):
        if DAX:
            s.barrier('home'); yield
            s.barrier('refl'); yield

    def shrink(s, length, values, state):
        """The length word, or a redo record; the point; then the clean-up."""
        if values or length in OF['P'][1:]:
            yield from s.write(values, length)
        else:
            s.store('N', length); yield
        yield from s.sync(False, False, state)
        yield from s.clean()

    def grow(s, values=()):
        s.force |= not s.rest and MUT != 'grow_no_flush'
        s.rest = True
        yield from s.sync_lengths()
        if values:
            yield from s.write(values, 3)
        else:
            s.store('N', 3); yield

    def drop(s, k):
        s.may = k
        if MUT == 'free_first':
            live = [a for a, _ in live_of(s.table) if a != k]
            s.store_ = tuple(r for r in s.store_ if any(a <= r[0] for a in live)); yield
        s.table = tuple((a, 'dropped' if a == k else state, n) for a, state, n in s.table)
        s.put_table(s.table); yield
        s.barrier('store'); yield
        if MUT != 'floor_not_at_drop':
            s.raise_floor(); yield
            s.barrier('floor'); yield
        s.may = None
        del s.snaps[k]

        def stays(r):
            return needed(s.table, r[0]) and not (MUT == 'free_own' and r[0] == k)
        s.kept, s.jkept, s.store_ = (tuple(filter(stays, x)) for x in (s.kept, s.jkept, s.store_))

    def is_rolling(s):
        """An intention counts in its own session: the next one voids it with the redo record."""
        found = s.cur('I')
        any_ = MUT == 'roll_intention_of_any_session' and found is not None
        return found == s.cur('S')[1] or any_

    def roll(s, k):
        """Rolls back: a point, the intention, ordinary writes, a point, the end of the intention.
        After a death the intention sends the opening back to the newest point, which is one of the
        two."""
        if MUT != 'roll_no_first_point':
            yield from s.sync(False, False, s.now)
        length = next(n for a, _, n in s.table if a == k)
        if MUT != 'roll_no_intention':
            s.store('I', s.cur('S')[1]); yield
        want = s.snapshot(k, length)
        if length > s.cur('N'):
            yield from s.grow()
        have = s.seen()
        values = {i: want[i] for i in PAGE if i < length and want[i] != have[i]}
        for i in values:
            yield from s.write({i: values[i]})
            if MUT == 'roll_point_in_the_middle':
                yield from s.sync(False, False, s.then)
        if MUT == 'intention_ends_early' and s.cur('I') is not None:
            s.store('I', None); yield
        if length < s.cur('N'):
            yield from s.shrink(length, {}, s.then)
        else:
            yield from s.sync(False, False, s.then)
        if s.cur('I') is not None:
            s.store('I', None); yield

    # ---- both closes -----------------------------------------------------------------------------

    def before_close(s):
        """The point of a close, and the store."""
        yield from s.sync(False, False, s.now)
        s.in_close = True
        s.to_store(); yield
        s.in_close = False
        if MUT != 'close_store_late':
            s.barrier('store'); yield
        s.raise_floor(); yield

    def close_fast(s):
        """A fast close, and the next opening in this boot."""
        yield from s.before_close()
        s.barrier('home'); yield
        s.store('S', ('fast', s.cur('S')[1], s.cur('N'))); yield
        s.barrier('refl'); yield
        s.store('Z', s.cur('S')[1]); yield
        if MUT == 'close_store_late':
            s.barrier('store'); yield
        yield from s.after_closing()

    def close_spatial(s):
        """A spatial close, and a new pair. The order of its last steps is in `snapshots_close.py`:
        here they are one."""
        yield from s.before_close()
        for i in PAGE:
            if s.side(i) == 1:
                s.store(f'H{i}', ('torn', 'd')); yield
                s.store(f'H{i}', s.cur(f'R{i}')); yield
                p = PAGE[i]
                s.store('W' + p, tuple(0 if j == i else b for j, b in zip(OF[p], s.word(p)))); yield
        if MUT == 'spatial_second_point':
            yield from s.sync(False, False, s.now)
            s.to_store(); yield
            s.barrier('store'); yield
        s.barrier('home'); yield
        durable = s.store_ + tuple(r for k in s.c if k[0] == 'X' for r in s.c[k][:1] if r)
        s.kept = tuple(r for r in dict.fromkeys(durable) if needed(s.table, r[0]))
        if s.c['T'][0] != s.table:
            raise Bad('the companions go before the table is durable')
        length, table, kept = s.cur('N'), s.table, s.kept
        for p in PAGES:
            zero = (0,) * len(OF[p])
            sum_ = S(p, s.content(p, zero, length))
            s.c['W' + p] = s.c['D' + p] = (zero,)
            s.c[f's{p}0'] = s.c[f's{p}1'] = (sum_,)
        for k in [k for k in s.c if k[0] in 'RJ']:
            s.c[k] = (0,) if k[0] == 'R' else (None,)
        s.c['E'] = s.c['I'] = s.c['Z'] = (None,)
        s.c['N'] = (length,)
        s.c['S'] = (('open', s.cur('S')[1] + 1, length),)
        s.boot(length, table, kept)

    # ---- recovery --------------------------------------------------------------------------------

    def records(s):
        kind, session, _ = s.cur('S')
        recs = {}
        for j in range(MOST):
            r = s.cur(f'J{j}')
            if r and r[0] != 'torn' and r[0] == session and kind != 'died':
                recs[r[1]] = (r, j)
        if not recs:
            return []
        top = low = max(recs)
        while low - 1 in recs and not recs[low][0][4]:
            low -= 1
        return [recs[k] for k in range(low, top + 1)]

    def from_store(s, recs):
        """Table and kept records, as the store and these records have them."""
        table = s.cur('T')
        for r, _ in recs:
            if r[6] and MUT == 'replay_seals':
                table = tuple(x for x in table if x[0] != r[6]) + ((r[6], 'sealed', r[7]),)
            elif r[6] and r[6] not in [k for k, _, _ in table]:
                table += ((r[6], 'sealed', r[7]),)
        table = tuple(sorted(table))
        xs = sorted(k for k in s.c if k[0] == 'X')
        stored = s.store_ + tuple(v for v in map(s.cur, xs) if v is not None)
        journal = tuple(k for r, _ in recs for k in r[5])

        def ok(records):
            return tuple(dict.fromkeys(r for r in records if needed(table, r[0])))
        return table, ok(stored), ok(journal)

    def place_of(s, p, words, length, at=0):
        """The place of sums that matches a page. A page that matches none is damaged."""
        want = S(p, s.content(p, words, length))
        for a in (at, 1 - at):
            if s.cur(f's{p}{a}') == want:
                return a
        raise Bad(f'page {p} is damaged: {want} is in no place')

    def after_death(s):
        """The page cache is as it was. An intention sends the file back to its newest point. Else
        the state that is found becomes a durable point, by a closed session: no record counts after
        that. So the store takes over before it what records have kept and sealed, and what the new
        point would leave to nobody."""
        kind = s.cur('S')[0]
        if kind != 'open':
            yield from s.after_closing()
            return
        if s.is_rolling():
            yield from s.go_back()
            return
        for part in s.cur('E') or ():
            for k, v in part:
                s.store(k, v); yield
        s.store('E', None); yield
        recs = s.records()
        if recs and MUT != 'death_newest_not_durable':
            top, place = recs[-1]
            s.store(f'J{place}', top)
            s.barrier('journal'); yield
        table, stored, journal = s.from_store(recs)
        s.table, s.kept = table, tuple(dict.fromkeys(stored + journal))
        s.dur = {p: s.cur('D' + p) for p in PAGES}
        s.dlen = s.cur('S')[2]
        if recs and MUT != 'death_old_words':
            s.dur, s.dlen = dict(recs[-1][0][2]), recs[-1][0][7]
        s.homed = frozenset()
        length = s.cur('N')
        for p in PAGES:
            at = s.place_of(p, s.word(p), length) if within(p, length) else 0
            if within(p, s.dlen):
                s.place_of(p, s.dur[p], s.dlen, at)
        kept = s.to_keep() if MUT != 'death_keeps_nothing' else ()
        if MUT == 'death_cut_no_keep' and length < s.dlen:
            kept = tuple((*r[:3], tuple(x for x in r[3] if x[0] < length)) for r in kept)
        s.put(r for r in journal + kept if r not in stored
              and not (MUT == 'death_drops_kept' and r in journal))
        if MUT != 'death_drops_table':
            s.put_table(table)
        yield
        if MUT not in ('death_store_not_synced', 'death_store_late'):
            s.barrier('store'); yield
        s.raise_floor(); yield
        s.barrier('home'); yield
        s.barrier('refl'); yield
        s.store('S', ('died', s.cur('S')[1], length)); yield
        yield from s.after_closing()

    def after_closing(s):
        """A closed session: working words count. Begins durable words and the next session."""
        table, kept, _ = s.from_store([])
        s.table = table
        s.barrier('refl'); yield
        if MUT == 'death_store_late':
            s.barrier('store'); yield
        length = s.cur('N')
        for p in PAGES:
            s.store('D' + p, s.word(p)); yield
        s.barrier('home'); yield
        s.barrier('refl'); yield
        places = {p: s.place_of(p, s.word(p), length) for p in PAGES if within(p, length)}
        yield from s.begin_session(length, table, kept)
        s.pd.update(places)
        s.vp.update(places)

    def begin_session(s, length, table, kept):
        """Voids the journal and the redo record. Then it cleans up past the end."""
        s.store('E', None)
        s.store('S', ('open', s.cur('S')[1] + 1, length))
        s.barrier('refl'); yield
        s.boot(length, table, tuple(dict.fromkeys(kept)))
        if length < 3:
            yield from s.clean()

    def go_back(s):
        """To the last durable point: after a loss of power, with AtomicSync after every end, and
        after a death in a rollback. A closed session that is settled needs nothing."""
        kind, session, length = s.cur('S')
        if kind == 'died' or (kind == 'fast' and s.cur('Z') == session):
            yield from s.after_closing()
            return
        recs = s.records()
        if recs:
            top, place = recs[-1]
            s.store(f'J{place}', top)
            s.barrier('journal'); yield
        table, stored, journal = s.from_store(recs)
        s.table = table
        if MUT == 'power_drops_kept':
            journal = ()
        for r, _ in recs:
            for k, v in r[3]:
                # The home file of a closed pair is complete, and keeps its times.
                if kind != 'fast' or k[0] != 'H':
                    s.store(k, v); yield
            for p, w in r[2]:
                s.store('D' + p, w); yield
            for p, x in r[8]:
                s.store(f's{p}0', x)
                s.store(f's{p}1', x); yield
            length = r[7] if MUT != 'length_not_replayed' else length
        s.put(r for r in journal if r not in stored)
        s.put_table(table); yield
        if MUT != 'power_store_not_synced':
            s.barrier('store'); yield
        s.raise_floor(); yield
        s.barrier('home'); yield
        s.barrier('refl'); yield
        for p in PAGES:
            s.store('W' + p, s.cur('D' + p)); yield
        if MUT == 'roll_intention_ends_in_back':
            s.store('I', None)
        s.store('N', length); yield
        places = {p: s.place_of(p, s.cur('D' + p), length) for p in PAGES if within(p, length)}
        yield from s.begin_session(length, table, stored + journal)
        s.pd.update(places)
        s.vp.update(places)

    # ---- choosing --------------------------------------------------------------------------------

    def can(s, op):
        name, x = op
        live, n = len(live_of(s.table)), s.cur('N')
        return {
            'snap': lambda: len(s.table) < SEALS,
            'drop': lambda: live >= {'oldest': 1, 'middle': 3, 'newest': 2}[x],
            'cut': lambda: n > x[0],
            'grow': lambda: n < 3,
            'roll': lambda: live > 0,
            'write': lambda: all(i < n for i in x),
        }.get(name, lambda: True)()

    def begin(s, op):
        """The steps of an operation. `then` is the state after it."""
        name, x = op
        live = [k for k, _ in live_of(s.table)]
        state, values = list(s.now), {}

        def fill(slices):
            for i in slices:
                s.v += 1
                values[i] = state[i] = s.v
        if name == 'write':
            fill(x)
        elif name == 'cut':
            state = [v if i < x[0] else None for i, v in enumerate(state)]
            fill(x[1])
        elif name == 'grow':
            state = [0 if v is None else v for v in state]
            fill(x)
        elif name == 'roll':
            state = list(s.snaps[live[0]])
        s.then = tuple(state)
        if name == 'drop':
            which = {'oldest': 0, 'middle': len(live) // 2, 'newest': -1}[x]
            return s.drop(live[which])
        return {
            'write': lambda: s.write(values),
            'sync': lambda: s.sync(x == 'flush', False, s.now),
            'snap': lambda: s.sync(x == 'flush', True, s.now),
            'checkpoint': lambda: s.checkpoint(x),
            'deploy': lambda: s.deploy(x),
            'cut': lambda: s.shrink(x[0], values, s.then),
            'grow': lambda: s.grow(values),
            'roll': lambda: s.roll(live[0]),
            'fast': s.close_fast,
            'spatial': s.close_spatial,
        }[name]()
