"""The machine and the engine of `snapshots_page_cache.py`: files, operations, closes, recovery.

Each operation is a generator that yields where the process may die. `MUT` names the rule that is
left out. `snapshots_page_cache.py` says what is checked, and sets `MUT`, `SEALS` and `DAX`.
"""
from snapshots_page_cache_machine import (OF, PAGE, PAGES, Bad, Machine, cut_to, is_needed, trim,
                                          within)

MUT = 'none'
PLACES = 2                                        # places of a new journal
MOST = 3                                          # and of one that has grown
AT_MOST = 2                                       # slices of a record
SEALS = 3
DAX = False                                       # a change of the length syncs both files


class Sim(Machine):
    def __init__(s):
        Machine.__init__(s, PLACES, MOST)
        s.boot(3, (0, (), 0), ())

    def boot(s, length, table, kept):
        """What DRAM knows after an opening."""
        s.dur = {p: s.cur('D' + p) for p in PAGES}
        s.dlen = length
        s.n = 0
        s.used = ()                               # (number, place) of the records that are needed
        s.table = table
        s.kept = kept                             # the index: (epoch, page, slices)
        s.force = s.rest = False                  # a flush is due; the rest is zero on the disk
        s.homed = frozenset()                     # brought home, and not written since
        s.free()

    def free(s, live=None):
        """Gives back the records that no live snapshot needs, on the disk as well."""
        live = s.table[1] if live is None else live
        if MUT == 'free_by_oldest':
            s.kept = tuple(r for r in s.kept if any(k == r[0] for k, _ in live))
        elif MUT == 'free_newer_served':
            oldest = min((k for k, _ in live), default=99)
            s.kept = tuple(r for r in s.kept if oldest <= r[0] < oldest + 2)
        else:
            s.kept = tuple(r for r in s.kept if any(is_needed(r, i, s.kept, live)
                                                    for i, _ in r[2]))
        s.store_ = tuple(r for r in s.store_ if r in s.kept)

    def newest(s, p):
        """L(p): the newest live snapshot that reaches the page."""
        return max((k for k, n in s.table[1] if within(p, n) or MUT == 'newest_of_any_length'),
                   default=0)

    def find(s, k, i):
        """The bytes of slice i in snapshot k."""
        p = PAGE[i]
        ours = sorted((r for r in s.kept if r[1] == p and r[0] >= k), key=lambda r: r[0],
                      reverse=MUT == 'reader_newest_record')
        for e, _, kept in ours:
            if i in dict(kept) and not (MUT == 'reader_one_epoch' and e != k):
                return dict(kept)[i]
        if not within(p, s.cur('N') if MUT == 'reader_present_length' else s.dlen):
            return 0
        words = s.word(p) if MUT == 'reader_valid' else s.dur[p]
        return s.cur(s.slot(i, words[OF[p].index(i)]))

    def snapshot(s, k, length):
        return tuple(cut_to(i, s.find(k, i), length) if i < length else None for i in PAGE)

    # ---- operations ------------------------------------------------------------------------------

    def write(s, values, length=None):
        """Redo, or a flip where no slice stays, with a new length or without. It keeps nothing."""
        flips = [i for i in values if s.side(i) == s.dside(i)]
        stays = [i for i in values if i not in flips]
        s.homed -= frozenset(values) if MUT != 'homed_stays' else frozenset()
        for i in flips:
            slot = s.slot(i, 1 - s.side(i))
            s.store(slot, ('torn', values[i])); yield
            s.store(slot, values[i]); yield
        words = []
        for p in sorted({PAGE[i] for i in values}):
            w = tuple(1 - b if i in flips else b for i, b in zip(OF[p], s.word(p)))
            if w != s.word(p):
                words.append(('W' + p, w))
        bytes_ = tuple((s.slot(i, s.side(i)), values[i]) for i in stays)
        lengths = (('N', length),) if length is not None else ()
        if stays or len(words) > 1 or lengths:
            s.store('E', (bytes_, tuple(words), lengths)); yield
        for slot, v in bytes_:
            s.store(slot, ('torn', v)); yield
            s.store(slot, v); yield
        for k, v in (*words, *lengths):
            s.store(k, v); yield
        if s.cur('E') is not None:
            s.store('E', None); yield

    def to_keep(s, length=None, written=()):
        """What the next durable point would leave to nobody: (epoch, page, slices). The point has
        this length, and these slices are written before it."""
        out, n = [], s.cur('N') if length is None else length
        for p in PAGES if MUT != 'no_keep' else ():
            last = s.newest(p)
            if not last:
                continue
            have = {i for r in s.kept if r[1] == p and (r[0] >= last or MUT == 'keep_once')
                    for i, _ in r[2]}
            if MUT == 'keep_anew':
                have = set()

            def is_lost(i):
                value = s.cur(s.slot(i, s.dside(i)))
                is_past = n < s.dlen and n < i + 1 and i < s.dlen and MUT != 'cut_no_keep'
                if MUT == 'cut_slice_no_keep' and i < n:
                    is_past = False               # the length cuts this slice
                if MUT == 'cut_keeps_whole_pages' and within(p, n):
                    is_past = False
                if is_past and value:
                    return True
                if MUT == 'zero_not_kept' and not value:
                    return False
                is_home = i in s.homed and MUT in ('homed_left_out', 'homed_stays')
                differs = s.side(i) != s.dside(i) or i in written
                return within(p, n) and differs and not is_home
            lost = [i for i in OF[p] if i not in have and is_lost(i)]
            if lost:
                side = s.side if MUT == 'keep_valid' else s.dside
                out.append((last, p, tuple((i, s.cur(s.slot(i, side(i)))) for i in lost)))
        return tuple(out)

    def keep(s, *of):
        """The keeps of a point, appended and durable before its record."""
        kept = s.to_keep(*of)
        s.put(kept)
        s.kept += kept
        if kept:
            yield
        if s.is_store_dirty() and MUT != 'keep_not_synced':
            s.barrier('store'); yield

    def free_place(s):
        taken = {j for _, j in s.used}
        return next((j for j in range(s.places) if j not in taken), None)

    def changed(s):
        n = s.cur('N')
        return [i for i in PAGE if within(PAGE[i], n) and s.side(i) != s.dside(i)]

    def sync(s, flush, state):
        """A durable point: by a record in the journal, or by a sync of the files and a base."""
        length, changed = s.cur('N'), s.changed()
        if not changed and length == s.dlen:
            s.point = state                       # the last point is this one
            return
        s.began = state
        flush = flush or s.force or len(changed) > AT_MOST
        if MUT != 'keep_after':
            yield from s.keep()
        if flush:
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
        slots = [s.slot(i, s.side(i)) for i in changed] if not flush else []
        rec = (s.cur('S')[1], n, tuple(words.items()), tuple((k, s.cur(k)) for k in slots), flush,
               length)
        s.store(f'J{place}', ('torn', n)); yield
        s.store(f'J{place}', rec); yield
        s.barrier('journal'); yield
        if MUT == 'keep_after':
            yield from s.keep()
        s.n = n
        s.used = ((n, place),) if flush else s.used + ((n, place),)
        s.dur, s.dlen, s.force = dict(words), length, False
        s.homed = frozenset()
        s.point, s.began = state, None
        for p in PAGES:
            s.store('D' + p, words[p]); yield

    def checkpoint(s, beside=0):
        """Syncs both files. `beside`: another thread makes a point early or late in it."""
        n = s.n
        has_room = s.free_place() is not None or s.places < MOST
        may = beside and has_room and not s.force and len(s.changed()) <= AT_MOST
        if beside == 1 and may:
            yield from s.sync(False, s.now)
        s.barrier('home'); yield
        if beside == 2 and may:
            yield from s.sync(False, s.now)
        s.barrier('refl'); yield
        s.used = tuple(u for u in s.used if u[0] >= n)      # the newest record stays

    def put_table(s, last, live, intention):
        s.store('T', (last, tuple(sorted(live)), intention)); yield
        if MUT != 'table_not_synced':
            s.barrier('store'); yield

    def seal(s, flush, state, intention=0, beside=None):
        """A durable point, and then the table, before any other point. `beside`: a write that
        another thread makes in between. Returns when the table is durable."""
        last, live, _ = s.table
        k = last + 1
        if MUT == 'number_by_live':
            k = max((a for a, _ in live), default=0) + 1
        length = s.cur('N')
        s.snaps[k], s.may = state, k
        if MUT == 'table_before_point':
            yield from s.put_table(k, live + ((k, length),), intention)
        if MUT == 'l_before_point':
            s.table = (k, live + ((k, length),), intention)
        yield from s.sync(flush, state)
        if beside is not None:
            yield from s.write(beside)
            if MUT == 'point_before_table':
                yield from s.sync(False, s.then)
        if MUT == 'l_before_table' and beside is not None:
            # The next point begins when L is there, and the table is not.
            s.table = (k, live + ((k, length),), intention)
            yield from s.sync(False, s.then)
        if intention:
            s.also |= {s.then}
        if MUT != 'table_before_point':
            yield from s.put_table(k, live + ((k, length),), intention)
        s.table = (k, live + ((k, length),), intention)
        s.may = None

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
            for slot in (f'H{i}', f'R{i}') if i + 1 > n else ():
                s.store(slot, 0 if i >= n else trim(s.cur(slot))); yield
        if not within('Q', n):
            for k, v in (('WQ', (0,)), ('DQ', (0,))):
                s.store(k, v); yield
            s.dur['Q'] = (0,)
        s.rest = False
        yield from s.sync_lengths()

    def sync_lengths(s):
        if DAX:
            s.barrier('home'); yield
            s.barrier('refl'); yield

    def shrink(s, length, values, state):
        """The length word, or a redo record; the point; then the clean-up."""
        if values:
            yield from s.write(values, length)
        else:
            s.store('N', length); yield
        if MUT == 'cleaned_before_point':
            yield from s.clean()
        yield from s.sync(False, state)
        yield from s.clean()

    def grow(s, values=()):
        s.force |= not s.rest and MUT != 'grow_no_flush'
        s.rest = True
        yield from s.sync_lengths()
        if values:
            yield from s.write(values, 3)
        else:
            s.store('N', 3); yield

    def drop(s, k, beside):
        """The table, durable; then L; then records go. `beside`: another thread makes a point."""
        s.may = k
        last, live, _ = s.table
        live = tuple(x for x in live if x[0] != k)
        if MUT == 'free_first':
            s.free(live); yield
        if MUT == 'drop_l_early':
            s.table = (last, live, 0)
        if beside and MUT == 'drop_l_early':
            yield from s.sync(False, s.now)
        s.store('T', (last, live, 0)); yield
        if beside:
            yield from s.sync(False, s.now)
        if MUT != 'drop_not_synced':
            s.barrier('store'); yield
        s.table = (last, live, 0)
        s.may = None
        del s.snaps[k]
        s.free()

    def roll(s, k):
        """The undo snapshot with the intention; ordinary writes; a point; the intention ends."""
        if MUT == 'roll_no_undo_point':
            u = s.table[0] + 1
            s.snaps[u], s.may = s.now, u
            s.also |= {s.then}
            yield from s.put_table(u, s.table[1] + ((u, s.cur('N')),), k)
            s.table, s.may = s.cur('T'), None
        elif MUT == 'roll_no_intention':
            yield from s.seal(False, s.now)
        elif MUT == 'intention_before_undo':
            s.also |= {s.then}
            yield from s.put_table(s.table[0], s.table[1], k)
            s.table = s.cur('T')
            yield from s.seal(False, s.now, k)
        elif MUT == 'intention_late':
            yield from s.seal(False, s.now)
            yield from s.write({0: s.then[0]})
            yield from s.put_table(s.table[0], s.table[1], k)
        else:
            yield from s.seal(False, s.now, k)
            s.only = frozenset({s.then})          # it is durable: an opening goes on
        yield from s.roll_on(k, s.then)

    def roll_on(s, k, state):
        length = dict(s.table[1])[k]
        want = s.snapshot(k, length)
        if length > s.cur('N'):
            yield from s.grow()
        have = s.seen()
        for i in [i for i in PAGE if i < length and want[i] != have[i]]:
            yield from s.write({i: want[i]})
            if MUT == 'point_in_rollback':
                yield from s.sync(False, s.now)
        if MUT == 'intention_ends_early':
            yield from s.put_table(s.table[0], s.table[1], 0)
        if length < s.cur('N'):
            yield from s.shrink(length, {}, state)
        else:
            yield from s.sync(False, state)
        yield from s.put_table(s.table[0], s.table[1], 0)
        s.table = s.cur('T')

    # ---- both closes -----------------------------------------------------------------------------

    def close_fast(s):
        """A fast close, and the next opening in this boot."""
        yield from s.sync(False, s.now)
        s.barrier('home'); yield
        s.store('S', ('fast', s.cur('S')[1], s.cur('N'))); yield
        s.barrier('refl'); yield
        s.store('Z', s.cur('S')[1]); yield
        yield from s.open(s.after_closing())

    def close_spatial(s):
        """A spatial close, and a new pair. The order of its last steps is in `snapshots_close.py`:
        here they are one."""
        yield from s.sync(False, s.now)
        for i in PAGE:
            if s.side(i) == 1:
                s.store(f'H{i}', ('torn', 'd')); yield
                s.store(f'H{i}', s.cur(f'R{i}')); yield
                p = PAGE[i]
                s.store('W' + p, tuple(0 if j == i else b for j, b in zip(OF[p], s.word(p)))); yield
        s.barrier('home'); yield
        if s.is_store_dirty():
            raise Bad('the companions go before the store is durable')
        length, table, kept = s.cur('N'), s.table, s.kept
        for p in PAGES:
            s.c['W' + p] = s.c['D' + p] = ((0,) * len(OF[p]),)
        for k in [k for k in s.c if k[0] in 'RJ']:
            s.c[k] = (0,) if k[0] == 'R' else (None,)
        s.c['E'] = s.c['Z'] = (None,)
        s.c['N'] = (length,)
        s.c['S'] = (('open', s.cur('S')[1] + 1, length),)
        s.boot(length, table, kept)

    # ---- recovery --------------------------------------------------------------------------------

    def open(s, way):
        """The store first, then the files, and then a rollback that is under way goes on."""
        s.table = s.cur('T')
        s.kept = s.records_of_store()
        if any(r[0] > s.table[0] for r in s.kept):
            raise Bad('a record of an epoch that was never sealed: its number is given again')
        if MUT == 'open_table_not_synced':
            value, s.c['T'] = s.c['T'], s.c['T'][-1:]
            s.barrier('store')
            s.c['T'] = value
        elif MUT != 'open_not_synced':
            s.barrier('store')
        yield
        yield from way
        k = s.table[2]
        if k and MUT != 'roll_not_gone_on':
            if k not in dict(s.table[1]):
                raise Bad(f'the snapshot {k} to roll back to is gone')
            yield from s.roll_on(k, s.snapshot(k, dict(s.table[1])[k]))

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

    def after_death(s):
        """The page cache is as it was. The state that is found becomes a durable point, by a closed
        session: no record counts after that. It keeps as each point does."""
        if s.cur('S')[0] != 'open':
            yield from s.after_closing()
            return
        for part in s.cur('E') or ():
            for k, v in part:
                s.store(k, v); yield
        s.store('E', None); yield
        recs = s.records()
        if recs and MUT == 'death_newest_durable':
            top, place = recs[-1]
            s.store(f'J{place}', top)
            s.barrier('journal'); yield
        s.dur = {p: s.cur('D' + p) for p in PAGES}
        s.dlen = s.cur('S')[2]
        if recs and MUT != 'death_old_words':
            s.dur, s.dlen = dict(recs[-1][0][2]), recs[-1][0][5]
        s.homed = frozenset()
        length = s.cur('N')
        kept = s.to_keep() if MUT != 'death_keeps_nothing' else ()
        if MUT == 'death_keeps_cut_only' and length >= s.dlen:
            kept = ()
        if MUT == 'death_cut_no_keep' and length < s.dlen:
            kept = tuple((*r[:2], tuple(x for x in r[2] if x[0] + 1 <= length)) for r in kept)
        s.put(kept)
        s.kept += kept; yield
        if MUT != 'death_store_not_synced':
            s.barrier('store'); yield
        s.barrier('home'); yield
        s.barrier('refl'); yield
        s.store('S', ('died', s.cur('S')[1], length)); yield
        yield from s.after_closing()

    def after_closing(s):
        """A closed session: working words count. Begins durable words and the next session."""
        s.barrier('refl'); yield
        for p in PAGES:
            s.store('D' + p, s.word(p)); yield
        s.barrier('home'); yield
        s.barrier('refl'); yield
        yield from s.begin_session(s.cur('N'))

    def begin_session(s, length):
        """Voids the journal and the redo record. Then it cleans up past the end."""
        s.store('E', None)
        s.store('S', ('open', s.cur('S')[1] + 1, length))
        s.barrier('refl'); yield
        s.boot(length, s.table, s.kept)
        if length < 3:
            yield from s.clean()

    def go_back(s):
        """To the last durable point: after a loss of power, and with AtomicSync after every end.
        A closed session that is settled needs nothing."""
        kind, session, length = s.cur('S')
        if kind == 'died' or (kind == 'fast' and s.cur('Z') == session):
            yield from s.after_closing()
            return
        recs = s.records()
        if recs:
            top, place = recs[-1]
            s.store(f'J{place}', top)
            s.barrier('journal'); yield
        for r, _ in recs:
            for k, v in r[3]:
                # The home file of a closed pair is complete, and keeps its times.
                if kind != 'fast' or k[0] != 'H':
                    s.store(k, v); yield
            for p, w in r[2]:
                s.store('D' + p, w); yield
            length = r[5] if MUT != 'length_not_replayed' else length
        s.barrier('home'); yield
        s.barrier('refl'); yield
        for p in PAGES:
            s.store('W' + p, s.cur('D' + p)); yield
        s.store('N', length); yield
        yield from s.begin_session(length)

    # ---- choosing --------------------------------------------------------------------------------

    def can(s, op):
        name, x = op
        live, n = len(s.table[1]), s.cur('N')
        return {
            'snap': lambda: s.table[0] < SEALS,
            'beside': lambda: s.table[0] < SEALS,
            'drop': lambda: live >= {'oldest': 1, 'middle': 3, 'newest': 2}[x],
            'dropj': lambda: live >= {'oldest': 1, 'newest': 2}[x],
            'cut': lambda: n > x[0],
            'grow': lambda: n < 3,
            'roll': lambda: live > x and s.table[0] < SEALS,
            'write': lambda: all(i + 1 <= n for i in x),
        }.get(name, lambda: True)()

    def begin(s, op):
        """The steps of an operation. `then` is the state after it."""
        name, x = op
        live = [k for k, _ in s.table[1]]
        state, values = list(s.now), {}

        def fill(slices):
            for i in slices:
                s.v += 1
                values[i] = state[i] = s.v
        if name == 'write':
            fill(x)
        elif name == 'beside':
            fill((0,))
        elif name == 'cut':
            state = [cut_to(i, v, x[0]) if i < x[0] else None for i, v in enumerate(state)]
            fill(x[1])
        elif name == 'grow':
            state = [0 if v is None else v for v in state]
            fill(x)
        elif name == 'roll':
            state = list(s.snaps[live[x]])
        s.then = tuple(state)
        if name in ('drop', 'dropj'):
            which = {'oldest': 0, 'middle': len(live) // 2, 'newest': -1}[x]
            return s.drop(live[which], name == 'dropj')
        return {
            'write': lambda: s.write(values),
            'sync': lambda: s.sync(x == 'flush', s.now),
            'snap': lambda: s.seal(x == 'flush', s.now),
            'beside': lambda: s.seal(False, s.now, beside=values),
            'checkpoint': lambda: s.checkpoint(x),
            'deploy': lambda: s.deploy(x),
            'cut': lambda: s.shrink(x[0], values, s.then),
            'grow': lambda: s.grow(values),
            'roll': lambda: s.roll(live[x]),
            'fast': s.close_fast,
            'spatial': s.close_spatial,
        }[name]()
