#!/usr/bin/env python3
"""The machine of page_sums.py: the medium, what an opening does, and a session with its operations."""
import itertools
import random

BAD, TORN = 1 << 20, 1 << 10
ZERO = (0, 0)
PAGES = (0, 1)
MUT = ['none']
STATS = {'images': 0, 'spoiled': 0, 'other': 0, 'operations': 0}


def is_(name):
    return MUT[0] == name


class Damaged(Exception):
    pass


class Violation(Exception):
    pass


def first_image():
    m = {f'{f}{i}': (i + 1 if f == 'H' else 0) for f in 'HR' for i in range(4)}
    for p in PAGES:
        m |= {f'W{p}': ZERO, f'D{p}': ZERO}
        m |= {f'S{p}{k}': (2 * p + 1, 2 * p + 2) for k in range(3)}
    state = (1, 2, 3, 4)
    return m | {'L': 4, 'X': 4, 'U': None, 'F': 1, 'K': None, 'I': None,
                'J': ((True, 4, (), state),)}


# ---- what an opening does ------------------------------------------------------------------------

def read(m):
    return tuple(m['HR'[m[f'W{i // 2}'][i % 2]] + str(i)] for i in range(m['L']))


def content(m, p):
    state = read(m)[2 * p:2 * p + 2]
    return state + ZERO[len(state):]


def passes(m, p):
    return any(m[f'S{p}{k}'] == content(m, p) for k in range(3))


def pages_of(length):
    return range((length + 1) // 2)


def clean(m):
    """Zeroes what lies past the length."""
    if m['X'] > m['L']:
        m.update({f'{f}{i}': 0 for f in 'HR' for i in range(m['L'], 4)})
        for p in PAGES:
            if 2 * p >= m['L']:
                m.update({f'W{p}': ZERO, f'D{p}': ZERO})
                if not is_('past_not_zeroed'):
                    m.update({f'S{p}{k}': ZERO for k in range(3)})
        m['X'] = m['L']


def recover(m):
    """Recovers an image by its log record. It leaves the sums alone."""
    m, u = dict(m), m['U']
    if u and u[0] == 'undo':
        m.update(u[1])
    if u and u[0] == 'logged' and all(m[k] == v for k, v in u[2]):
        m.update(u[1])
    if u and u[0] == 'redo':
        _, length, stays, words = u
        m.update(words)
        m.update(stays)
        if length is not None:
            m['L'] = length
    m['U'] = None
    clean(m)
    return m


# ---- a session -----------------------------------------------------------------------------------

class Sim:
    def __init__(s, medium, image, passing, spoiled=False):
        """`passing` has the contents that damage may bring back: those that a crash may go back to."""
        s.medium, s.c, s.flushed = medium, {k: [v] for k, v in image.items()}, {}
        s.passing, s.stale = {p: set(passing[p]) for p in PAGES}, {p: set() for p in PAGES}
        s.durable = {p: content(image, p) for p in PAGES}
        s.spoiled, s.sums, s.noted, s.must_flush, s.rest_is_zero = spoiled, {}, set(), False, False
        s.may, s.crashes, s.has_sums, s.is_rolling = [read(image)], {}, image['F'] == 1, False
        s.late, s.others = {}, {}
        s.fresh = max([v % BAD for k, v in image.items() if k[0] in 'HR'] + [9])
        if medium == 'cache':
            s.dlen = image['L']
            for p in PAGES:
                s.c[f'D{p}'] = [image[f'W{p}']]
            s.c['J'] = [((True, image['L'], (), read(image)),)]

    def copy(s):
        t = Sim.__new__(Sim)
        t.__dict__.update(s.__dict__)
        t.c = {k: list(v) for k, v in s.c.items()}
        t.passing, t.stale, t.durable = s.all_passing(False), {p: set(v) for p, v in s.stale.items()}, dict(s.durable)
        t.sums, t.noted = {p: list(v) for p, v in s.sums.items()}, set(s.noted)
        t.flushed, t.may, t.crashes = dict(s.flushed), list(s.may), {}
        t.late, t.others = dict(s.late), dict(s.others)
        return t

    def cur(s, k):
        return s.c[k][-1]

    def now(s):
        return {k: v[-1] for k, v in s.c.items()}

    # ---- the medium ----

    def put(s, k, v, flush=True):
        if s.cur(k) != v:
            s.c[k].append(v)
            s.check()
        if flush:
            s.flushed[k] = len(s.c[k]) - 1

    def drain(s):
        if s.medium == 'dax':
            for k, n in s.flushed.items():
                s.c[k] = s.c[k][n:]
            s.stale = {p: set() for p in PAGES}
        s.flushed, s.late = {}, {}

    def begin(s):
        """Another thread goes on. Stores past the cache that the last one has not drained may arrive
        at any time, over newer ones."""
        s.others, s.late = s.late, {}

    def all_passing(s, with_stale):
        """A loss of power also leaves sums that were replaced since the last drain or sync."""
        return {p: v | s.stale[p] if with_stale else set(v) for p, v in s.passing.items()}

    def passes_only(s, p, *contents):
        s.stale[p] |= s.passing[p]
        s.passing[p] = set(contents)

    def sync(s, files='HR'):
        """Home and reflection file, one after the other. The power may go in between."""
        if s.medium == 'cache':
            for f in files:
                for k in s.c:
                    if k != 'J' and (k[0] == 'H') == (f == 'H'):
                        s.c[k] = s.c[k][-1:]
                s.check()
            if 'R' in files:
                s.stale = {p: set() for p in PAGES}

    def durably(s, k, v):
        """A write that waits."""
        s.put(k, v)
        s.c[k] = [v]
        s.flushed.pop(k, None)
        s.check()

    # ---- checks ----

    def check(s):
        if s.spoiled:
            return
        if s.medium == 'dax':
            late = {k: [v] for k, v in s.others.items()}
            keys = [k for k, v in s.c.items() if len(v) > 1 or k in late]
            base = s.now()
            for some in itertools.product(*(dict.fromkeys(s.c[k] + late.get(k, [])) for k in keys)):
                s.check_image({**base, **dict(zip(keys, some))})
            return
        s.check_image(s.now())
        for journal in dict.fromkeys(s.c['J']):
            for flag in dict.fromkeys(s.c['F']):
                s.check_power_loss(journal, flag)

    def check_image(s, image):
        STATS['images'] += 1
        m = recover(image)
        if m['I'] is None and read(m) not in s.may:
            raise Violation(f'state {read(m)}, may be {s.may}')
        s.check_sums(m)
        s.add_crash(m, s.all_passing(s.medium == 'dax'))

    def add_crash(s, m, passing):
        _, known = s.crashes.setdefault(tuple(m.items()), (m, {p: set() for p in PAGES}))
        for p in PAGES:
            known[p] |= passing[p]

    def check_sums(s, m):
        for p in pages_of(m['L']):
            if m['F'] == 1 and m['I'] is None and not passes(m, p):
                places = [m[f'S{p}{k}'] for k in range(3)]
                raise Violation(f'page {p} with {content(m, p)} is taken for damaged: {places}')

    def check_power_loss(s, journal, flag):
        """Goes back to the last record. Pages do not depend on each other."""
        begin = max(n for n, record in enumerate(journal) if record[0])
        _, length, _, truth = journal[-1]
        image = s.now() | {'L': length, 'X': 5, 'U': None, 'J': journal, 'F': flag}
        choices = []
        for p in pages_of(length):
            cells, stored = {}, {}
            for _, _, changes, _ in journal[begin:]:
                for page, word, slices, total in changes:
                    if page == p:
                        stored[f'D{p}'] = word
                        stored |= dict(slices)
                        if total is not None and not is_('replay_without_sums'):
                            stored |= {f'S{p}{k}': total for k in range(3)}
            of_page = [f'D{p}', *(f'{f}{i}' for f in 'HR' for i in (2 * p, 2 * p + 1)),
                       *(f'S{p}{k}' for k in range(3))]
            cells = {k: [stored[k]] if k in stored else list(dict.fromkeys(s.c[k])) for k in of_page}
            found = []
            for some in itertools.product(*cells.values()):
                STATS['images'] += 1
                part = dict(zip(cells, some))
                part[f'W{p}'] = part[f'D{p}']
                m = image | part
                if content(m, p) != tuple(truth[2 * p:2 * p + 2]) + ZERO[len(truth[2 * p:2 * p + 2]):]:
                    raise Violation(f'page {p} with {content(m, p)} after a power loss, not {truth}')
                if flag == 1 and not passes(m, p):
                    places = [m[f'S{p}{k}'] for k in range(3)]
                    raise Violation(f'page {p} with {content(m, p)} is taken for damaged after a power loss: {places}')
                found.append(part)
            choices.append(random.Random(len(found)).sample(found, min(3, len(found))))
        for parts in itertools.islice(itertools.product(*choices), 4):
            m = dict(image)
            for part in parts:
                m |= part
            clean(m)
            s.add_crash(m, s.all_passing(True))

    # ---- sums ----

    def content(s, p):
        return content(s.now(), p)

    def verify(s, p):
        if not s.has_sums or p in s.sums and s.sums[p][0] is not None:
            return
        found = s.content(p)
        places = [k for k in range(3) if s.cur(f'S{p}{k}') == found]
        if not places:
            raise Damaged(p)
        s.sums[p] = [found, places[0], places[0]]
        s.durable[p] = found
        if not is_('stale_left_by_crash'):
            s.replace_stale(p)
        s.passes_only(p, found)

    def replace_stale(s, p):
        """Stores the sum to each place that neither the present nor the last durable point needs."""
        total, present, durable = s.sums[p]
        for k in {0, 1, 2} - {present, durable}:
            if is_('stale_streamed') and s.cur(f'S{p}{k}') != total:
                s.late[f'S{p}{k}'] = total
            s.put(f'S{p}{k}', total)

    def owed(s, p):
        kept = s.cur('K')
        return kept is not None and any(i not in dict(kept[1]) for i in (2 * p, 2 * p + 1) if i < kept[0])

    def prepare(s, changes, length, late=False):
        """Steps 1 to 3 of a change. With `late` the sums are not stored."""
        old_length, new = s.cur('L'), []
        pages = sorted({i // 2 for i in changes})
        if length < old_length and length % 2 and not is_('cut_sum_stays'):
            pages = sorted({*pages, length // 2})
        for p in pages if s.has_sums else ():
            readable = min(2, length - 2 * p)
            written = [changes.get(i) for i in (2 * p, 2 * p + 1)][:readable]
            is_replaced = None not in written
            old = s.content(p)
            is_known = p in s.sums
            if is_('unverified_anew') and not is_known:
                s.sums[p] = [old, 0, 0]
            try:
                s.verify(p)
            except Damaged:
                if not is_replaced or s.owed(p) and not is_('damaged_owed'):
                    raise
                s.sums.setdefault(p, [None, 0, 0])
            before, present, durable = s.sums[p]
            after = [changes.get(i, o) if n < readable else 0 for n, (i, o) in enumerate(zip((2 * p, 2 * p + 1), old))]
            total = tuple(after if is_replaced else (b ^ o ^ a for b, o, a in zip(before, old, after)))
            taken = {present} if is_('over_durable') else {present, durable}
            place = present if is_('over_present') else min({0, 1, 2} - taken)
            s.passing[p] |= {old, tuple(after)}
            if is_('stale_replaced_early'):
                for k in {0, 1, 2} - {durable}:
                    s.put(f'S{p}{k}', total)
            new.append((p, place, total))
        if not late:
            s.store_sums(new)
        return new

    def store_sums(s, new):
        for p, place, total in new:
            s.put(f'S{p}{place}', total, flush=not is_('sum_not_flushed'))

    def publish(s, new):
        for p, place, total in new:
            durable = place if s.medium == 'dax' or is_('durable_early') else s.sums[p][2]
            s.sums[p] = [total, s.sums[p][1] if is_('not_published') else place, durable]
            if not is_('stale_left'):
                s.replace_stale(p)
            s.passes_only(p, s.content(p), *([s.durable[p]] if s.medium == 'cache' else []))

    def check_places(s):
        """The present place of a verified page holds its sum. A keep may read it there after a change."""
        for p, (total, present, _) in s.sums.items():
            if total is not None and s.cur(f'S{p}{present}') != total:
                raise Violation(f'page {p} has no sum {total} in place {present}')

    # ---- operations ----

    def slot(s, i, side):
        return 'HR'[side] + str(i)

    def side(s, i):
        return s.cur(f'W{i // 2}')[i % 2]

    def keep(s, slices):
        kept = s.cur('K')
        if kept is None:
            return False
        side = (lambda i: s.cur(f'D{i // 2}')[i % 2]) if s.medium == 'cache' else s.side
        owed = [i for i in slices if i < kept[0] and i not in dict(kept[1])]
        if owed:
            more = tuple((i, s.cur(s.slot(i, side(i)))) for i in owed)
            s.put('K', (kept[0], kept[1] + more))
        return bool(owed)

    def keeps_at_stores(s, slices):
        return s.medium == 'dax' and s.keep(slices)

    def new_words(s, slices):
        words = {}
        for i in slices:
            word = list(words.get(f'W{i // 2}', s.cur(f'W{i // 2}')))
            word[i % 2] ^= 1
            words[f'W{i // 2}'] = tuple(word)
        return words

    def write(s, slices, pinned=(), value=None):
        """Writes slices in the way that the engine takes. A view pins the home slots of `pinned`."""
        s.fresh += 1
        changes = {i: s.fresh if value is None else value for i in slices}
        state = list(s.may[-1])
        for i, v in changes.items():
            state[i] = v
        s.may = [s.may[-1], tuple(state)]
        stays = [i for i in slices if s.is_claimed(i, pinned)]
        if stays or pinned:
            s.redo(changes, None, stays)
        else:
            s.flip(changes)
        s.may = s.may[1:]

    def is_claimed(s, i, pinned):
        if s.medium == 'cache':
            return s.side(i) != s.cur(f'D{i // 2}')[i % 2]
        return i in pinned and s.side(i) == 1

    def flip(s, changes):
        pages = {i // 2 for i in changes}
        words = s.new_words(changes)
        late = is_('word_before_sum') and len(pages) == 1 or is_('undo_sum_late') and len(pages) > 1
        new = s.prepare(changes, s.cur('L'), late)
        s.noted |= pages
        s.keeps_at_stores(changes)
        for i, v in changes.items():
            s.put(s.slot(i, 1 - s.side(i)), v)
        if is_('logged') and s.medium == 'dax' and len(pages) == 1:
            data = tuple((s.slot(i, 1 - s.side(i)), v) for i, v in changes.items())
            s.put('U', ('logged', tuple(words.items()), data))
        elif len(pages) > 1:
            s.put('U', ('undo', tuple((w, s.cur(w)) for w in words)))
        s.drain()
        for w, word in words.items():
            s.put(w, word)
        if late:
            s.store_sums(new)
        if is_('sum_not_flushed'):
            for p, place, _ in new:
                s.flushed[f'S{p}{place}'] = len(s.c[f'S{p}{place}']) - 1
        s.drain()
        if s.cur('U'):
            s.put('U', None)
            s.drain()
        s.publish(new)

    def redo(s, changes, length, stays):
        flips = [i for i in changes if i not in stays]
        words = s.new_words(flips)
        old_length = s.cur('L')
        new = s.prepare(changes, old_length if length is None else length)
        has_kept = s.keeps_at_stores(changes)
        for i in flips:
            s.put(s.slot(i, 1 - s.side(i)), changes[i])
        s.noted |= {i // 2 for i in changes}
        if flips or has_kept or new and not is_('redo_sums_undrained'):
            s.drain()
        over = tuple((s.slot(i, s.side(i)), changes[i]) for i in stays)
        s.put('U', ('redo', length, over, tuple(words.items())))
        s.drain()
        for k, v in (*over, *words.items()):
            s.put(k, v)
        if length is not None:
            s.put('L', length)
        s.drain()
        s.put('U', None)
        s.drain()
        s.publish(new)
        if length is not None and length % 2 and length < old_length and not is_('redo_cut_not_noted'):
            s.noted.add(length // 2)

    def resize(s, length, writes):
        """Changes the length, and writes slice 0 if `writes`."""
        old = s.cur('L')
        s.fresh += 1
        changes = {0: s.fresh} if writes else {}
        state = [*s.may[-1][:length], *[0] * (length - old)]
        if writes:
            state[0] = s.fresh
        state = tuple(state)
        if length > old:
            s.put('X', length)
            s.drain()
            s.must_flush |= not s.rest_is_zero
            s.rest_is_zero = True
        elif s.cur('K') is not None or is_('cut_verified_always'):
            s.keep_past(length)
        s.may = [s.may[-1], state]
        if writes:
            s.redo(changes, length, [0] if s.is_claimed(0, ()) else [])
        else:
            new = s.prepare({}, length)
            if new and not is_('cut_sum_undrained'):
                s.drain()
            s.put('L', length)
            s.drain()
            s.publish(new)
            if length % 2 and not is_('cut_not_noted'):
                s.noted.add(length // 2)
        s.may = [state]
        if length < old:
            if s.medium == 'cache':
                s.point(False)
            s.cut(length)

    def keep_past(s, length):
        past = [i for i in range(length, s.cur('L'))]
        for p in sorted({i // 2 for i in past}):
            if not is_('cut_kept_unverified'):
                s.verify(p)
        s.keep([i for i in past if s.cur(s.slot(i, s.side(i))) != 0])
        s.drain()

    def cut(s, length):
        s.rest_is_zero = False
        zeroes = {f'{f}{i}': 0 for f in 'HR' for i in range(length, 4)}
        sums = {}
        for p in PAGES:
            if 2 * p >= length:
                zeroes |= {f'W{p}': ZERO, f'D{p}': ZERO}
                sums |= {f'S{p}{k}': ZERO for k in range(3)} if not is_('past_not_zeroed') else {}
                s.sums[p] = [ZERO, 0, 0]
                s.passes_only(p, ZERO)
                s.durable[p] = ZERO
        for k, v in zeroes.items():
            s.put(k, v)
        for k, v in sums.items() if not is_('past_after_mark') else ():
            s.put(k, v)
        s.drain()
        s.put('X', length)
        s.drain()
        if is_('past_after_mark'):
            for k, v in sums.items():
                s.put(k, v)

    def deploy(s, p):
        """Brings slices home, verified or not. Slots of the durable point are not stored to."""
        away = [i for i in (2 * p, 2 * p + 1) if i < s.cur('L') and s.side(i)]
        if s.medium == 'cache':
            away = [i for i in away if not s.is_claimed(i, ())]
        for i in away:
            s.put(s.slot(i, 0), s.cur(s.slot(i, 1)))
        s.drain()
        for w, word in s.new_words(away).items():
            s.put(w, word)
        s.drain()
        s.noted.add(p)

    def seal(s):
        if s.medium == 'cache':
            s.point(False)
        s.durably('K', (s.cur('L'), ()))

    def roll_back(s):
        """Puts the slices that were kept back. It is on `dax`, and changes no length."""
        length, kept = s.cur('K')
        pages = sorted({i // 2 for i, _ in kept})
        if not is_('roll_unverified'):
            for p in pages:
                s.verify(p)
        s.durably('I', kept)
        state = list(s.may[-1])
        for i, v in kept:
            state[i] = v
        s.may = [tuple(state)]
        s.restore(kept)

    def restore(s, kept):
        new = s.prepare(dict(kept), s.cur('L'), late=is_('roll_not_stored'))
        # A view claims slots, so slices with an odd number are stored over their valid slots.
        for i, v in kept:
            if i % 2 == 0:
                s.put(s.slot(i, 1 - s.side(i)), v)
        s.drain()
        for i, v in kept:
            if i % 2:
                # No record covers the copy, and a crash may tear it.
                s.put(s.slot(i, s.side(i)), v ^ TORN)
                s.put(s.slot(i, s.side(i)), v)
        for w, word in s.new_words([i for i, _ in kept if i % 2 == 0]).items():
            s.put(w, word)
        s.drain()
        s.publish(new)
        s.durably('I', None)

    def finish_rollback(s):
        kept = s.cur('I')
        state = list(read(s.now()))
        for i, v in kept:
            state[i] = v
        s.may = [tuple(state)]
        for p in sorted({i // 2 for i, _ in kept}):
            if not is_('roll_not_accepted'):
                s.sums[p] = [s.content(p), 0, 0]
                for k in range(3) if not is_('accepted_not_stored') else ():
                    s.put(f'S{p}{k}', s.content(p), flush=False)
        s.check_places()
        s.restore(kept)

    # ---- durable points ----

    def point(s, flush):
        length = s.cur('L')
        moved = lambda p: s.has_sums and p in s.sums and s.sums[p][1] != s.sums[p][2]
        cut = [p for p in sorted(s.noted) if 2 * p < length and (s.cur(f'W{p}') != s.cur(f'D{p}') or moved(p))]
        s.noted = set()
        if not cut and length == s.dlen:
            return
        changed = lambda p: [i for i in (2 * p, 2 * p + 1) if s.is_claimed(i, ())]
        s.keep([i for p in cut if s.may_keep(p) for i in changed(p)])
        flush |= s.must_flush
        changes = []
        for p in cut:
            slices = () if flush else tuple((s.slot(i, s.side(i)), s.cur(s.slot(i, s.side(i)))) for i in changed(p))
            total = None
            if s.has_sums and not flush and not is_('record_without_sums'):
                try:
                    s.verify(p)
                    total = s.sums[p][0]
                except Damaged:
                    total = s.cur(f'S{p}0')
            changes.append((p, s.cur(f'W{p}'), slices, total))
        if flush:
            s.sync()
            s.must_flush = False
        record = (flush, length, tuple(changes), s.may[-1])
        s.durably('J', (record,) if flush else s.cur('J') + (record,))
        for p in cut:
            s.put(f'D{p}', s.cur(f'W{p}'))
            if p in s.sums and not is_('durable_not_published'):
                has_moved = s.sums[p][1] != s.sums[p][2]
                s.sums[p][2] = s.sums[p][1]
                if has_moved and not is_('stale_left_by_point'):
                    s.replace_stale(p)
                if has_moved:
                    s.durable[p] = s.content(p)
                    s.passes_only(p, s.durable[p])
        s.dlen = length

    def may_keep(s, p):
        """A page that was not written may be damaged. Its slices were only brought home, so a snapshot
        reads the copies."""
        if s.cur('K') is not None and not is_('point_keeps_unverified'):
            try:
                s.verify(p)
            except Damaged:
                return False
        return True

    def checkpoint(s):
        """Both files have what the records say."""
        s.sync()
        _, length, _, state = s.cur('J')[-1]
        s.durably('J', ((True, length, (), state),))

    # ---- the ends of a session ----

    def close(s):
        if s.medium == 'cache':
            s.point(False)
        s.drain()
        s.sync()
        if s.medium == 'cache':
            # The superblock of the next session voids the journal.
            s.durably('J', ((True, s.cur('L'), (), s.may[-1]),))

    def begin_sums(s):
        """An opening of a file without sums."""
        if s.cur('F') == 1:
            return
        if is_('flag_early'):
            s.durably('F', 1)
        if not is_('old_not_zeroed'):
            for p in PAGES:
                for k in range(3):
                    s.put(f'S{p}{k}', ZERO)
        for p in pages_of(s.cur('L')):
            total = s.content(p)
            if total != ZERO:
                for k in range(3):
                    s.put(f'S{p}{k}', total)
            s.passing[p], s.stale[p], s.durable[p] = {total}, set(), total
        s.drain()
        s.sync('R')
        s.durably('F', 1)

    def end_sums(s):
        """An opening that wants no sums."""
        if not is_('flag_stays'):
            s.durably('F', 0)
        s.has_sums = False
