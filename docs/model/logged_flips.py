#!/usr/bin/env python3
"""Brute-force check of flips with one drain: a record covers the word until the word is durable.

A logged flip copies the data to the free slots, stores an entry into the lane's ring that names page, slots
and a checksum of what was copied, and drains once: that is its commit. Only then the word is stored, through
the cache; it is flushed with others later, long before the place of its entry comes round again. Recovery
stores the bits of each entry, in the order of the lane. Only the data of a lane's newest entry is verified: all
others were acknowledged, and may name slots that were written again since.

Words are flushed in batches (here of half a ring): with the drain of the last entry of each those of all entries
before it. So a lane's newest number says which entries nobody needs any more, and recovery leaves them out.

Chunk model: of each chunk, any value since the last one that is known to be durable may be there. A drain
makes durable what its own thread has flushed. Two slices (one word W) and a slice of another page (word V),
two slots each, two threads with a lane each. The first page also has a bit in the region word X, which moves both of
its slices: a slice is valid where the XOR of both bits says. Deployed pages give their reflection slots back, and
their words once those are zero: a word without storage must not be flushed. A redo record
carries the bytes of slices without a free slot, and names the bits of those that flip. It stores over slots that
entries may name; there the power goes in recovery, too.

With page sums, each page has three places for its sum, which here is the bytes of its valid slices. A logged flip
has the new sum in its entry, and stores it to a place after its drain, as it does with the word. Any other operation
voids the entries of its pages, and stores the new sums before its first drain. After a recovery the sum of each page
has to be in one of its places.

The file is one page long or two (word L). An operation that writes and changes the length is committed by a redo
record that begins with the new length. What a shrink cuts off is zeroed after the record has ended.

Usage: logged_flips.py [DEPTH] [MUTANT] [RING]     or: logged_flips.py --all [DEPTH]
"""
import itertools
import random
import sys

MUTANTS = {
    'other_lane': 'a logged flip although an entry of another lane names a slice',
    'no_settle': 'entries are cleared before their words are durable',
    'verify_all': 'recovery verifies all entries (the rule as first written: the power test found the hole)',
    'no_clear': 'another way does not clear the entries that name its slices',
    'clear_with_word': 'entries are cleared together with the new word, not before',
    'no_batch': 'the words of old entries are not flushed before their places come round',
    'one_too_many': 'recovery leaves out the entry with whose drain the last batch was flushed, too',
    'this_batch': 'recovery leaves out what the batch will flush that the newest entry belongs to',
    'batch_of_all': 'words are flushed once a ring, and recovery believes that it was each half',
    'no_data_check': 'recovery does not verify the data',
    'voids_lane': 'a cleared entry voids all older ones of its lane',
    'voids_none': 'a cleared entry voids no older one',
    'word_first': 'the word is stored before the drain',
    'any_order': 'recovery takes the newer entries of a lane first',
    'no_entry_sum': 'a torn entry counts',
    'redo_no_clear': 'redo does not clear the entries that name its slices',
    'redo_no_drain': 'a redo record is durable before the entries that name its slots are void (as first built: this model found it)',
    'redo_flips_no_drain': 'a redo record is durable before the slices that flip by it are in their free slots',
    'redo_no_commit_drain': 'redo stores over valid slots before its record is durable',
    'redo_no_end_drain': 'the end of a redo record is not durable when the locks open',
    'redo_half_record': 'a redo record without the bits that flip',
    'no_length': 'the redo record of an operation that changes the length does not hold it',
    'length_first': 'the length word is stored before the record that holds the length is durable',
    'length_after_end': 'the record ends before the length word is durable',
    'length_not_redone': 'recovery does not store the length of a redo record',
    'recover_by_word': 'recovery leaves out the pages past the length word, although a record holds a larger length',
    'cut_before_end': 'the bytes past a new end are zeroed before the record is durable',
    'zero_by_two_stores': 'the two words of a deployed page are zeroed without an undo record',
    'words_with_records': 'a word gives its storage back while an entry covers it',
    'bits_in_entries': 'an entry names bits of the slice word, and not sides',
    'no_session': 'the header does not say of which session it is (as first built: the crash lab found the hole)',
}
WITH_SUMS = {
    'sum_not_in_entry': 'an entry does not hold the sum of the page',
    'sum_not_restored': 'recovery does not store the sum of an entry',
    'sum_not_stored': 'a logged flip does not store the sum after its drain',
    'sums_not_settled': 'entries are cleared before the sums that they cover are durable',
    'sums_not_in_batch': 'the sums of old entries are not flushed with their words',
    'sums_by_slice': 'a logged flip although an entry of another lane names another slice of the page',
    'older_sums': 'another way does not clear the entries of other slices of its pages',
    'sum_with_word': 'another way stores the sum with the word, and not before',
    'redo_no_drain_after_sums': 'a redo record is durable before the new sums',
}
MUT = 'none'
SUMS = False
PLACES = (0, 1, 2)
RING = 2
BEFORE, NOW = 'session before', 'session'
SLICES = {0: 'W', 1: 'W', 2: 'V'}                 # slice -> the word of its page


class Sim:
    def __init__(s):
        s.c = {}
        for i in SLICES:
            s.c[f'H{i}'] = [0]
            s.c[f'R{i}'] = [0]
        for w in 'WV':
            s.c[w] = [(0, 0, 0)]
        s.c['L'] = [2]
        s.c['X'] = [0]
        s.gone = set()                            # words without storage
        s.place = {'W': 0, 'V': 0}                # page -> the place that counts
        s.sum = {'W': (0, 0), 'V': (0,)}          # page -> what it holds
        if SUMS:
            for w in 'WV':
                for n in PLACES:
                    s.c[f'{w}{n}'] = [s.sum[w]]
        for t in (0, 1):
            s.c[f'l{t}'] = [None]
            for e in range(RING):
                # What the session before has left, whose numbers began where this one's do.
                seq = next(n for n in range(1, RING + 1) if n % RING == e)
                s.c[f'h{t}{e}'] = [('void', BEFORE, seq)]
                s.c[f'b{t}{e}'] = [(BEFORE, seq, 'W', ((0, 0),), (('H0', 0),), None)]
        s.flushed = [{}, {}]                      # thread -> chunk -> index that a drain makes durable
        s.seq = [0, 0]
        s.live = {}                               # (t, e) -> (seq, slices, sides, word)
        s.durable_word = {}                       # (t, e) -> 0 no, 1 flushed, 2 drained
        s.v = 0
        s.model = [(0, 0, 0)]
        s.acked = 0
        s.started = 0
        s.check = None

    def cur(s, k):
        return s.c[k][-1]

    def store(s, k, v):
        s.gone.discard(k)
        s.c[k].append(v)
        s.check(s)

    def flush(s, k, t):
        if k in s.gone:
            s.check.fail(f'{k} is flushed, and has no storage')
        s.flushed[t][k] = len(s.c[k]) - 1

    def through(s, k, v, t):
        s.store(k, v)
        s.flush(k, t)

    def drain(s, t):
        for k, i in s.flushed[t].items():
            if i > 0:
                s.c[k] = s.c[k][i:]
                for other in s.flushed:
                    if other is not s.flushed[t] and k in other:
                        other[k] = max(other[k] - i, 0)
        s.flushed[t] = {}
        for key, state in s.durable_word.items():
            if state == (1, t):
                s.durable_word[key] = (2, t)

    def side(s, i):
        return s.cur(SLICES[i])[i] ^ (s.cur('X') if SLICES[i] == 'W' else 0)

    def slot(s, i, side):
        return 'HR'[side] + str(i)

    def moved(s, word, slices):
        now = list(s.cur(word))
        for i in slices:
            now[i] = 1 - now[i]
        return tuple(now)

    # ---- sums --------------------------------------------------------------------------------------

    def new_sums(s, slices, v):
        """What the pages of these slices hold once the slices hold v: page -> (place, sum)."""
        if not SUMS:
            return {}
        new = {}
        for w in sorted({SLICES[i] for i in slices}):
            of_page = [i for i in SLICES if SLICES[i] == w]
            sum_ = tuple(v if i in slices else old for i, old in zip(of_page, s.sum[w]))
            new[w] = (next(n for n in PLACES if n != s.place[w]), sum_)
        return new

    def store_sums(s, new, t):
        """What every way but a logged flip does before its first drain."""
        for w in new:
            s.clear(s.before_words([i for i in SLICES if SLICES[i] == w], {w}, t, True), t)
        if MUT != 'sum_with_word':
            s.put_sums(new, t)

    def put_sums(s, new, t):
        for w, (place, sum_) in new.items():
            s.through(f'{w}{place}', sum_, t)

    def publish_sums(s, new):
        for w, (place, sum_) in new.items():
            s.place[w], s.sum[w] = place, sum_

    def flush_word(s, w, t, mutant):
        s.flush(w, t)
        if SUMS and MUT != mutant:
            for n in PLACES:
                s.flush(f'{w}{n}', t)

    # ---- live entries ------------------------------------------------------------------------------

    def named(s, slices):
        return [k for k, (_, of, _, _) in s.live.items() if set(of) & set(slices)]

    def settle(s, words, t):
        """Makes words durable: they were stored through the cache, so anybody may flush them."""
        for w in words:
            s.flush_word(w, t, 'sums_not_settled')
        s.drain(t)
        for key, (_, _, _, w) in s.live.items():
            if w in words:
                s.durable_word[key] = (2, t)

    def clear(s, keys, t):
        for (lt, e) in keys:
            h = s.cur(f'h{lt}{e}')
            s.through(f'h{lt}{e}', ('void',) + h[1:], t)
            del s.live[(lt, e)]

    # ---- the ways ----------------------------------------------------------------------------------

    def logged_flip(s, slices, t, v):
        word = SLICES[slices[0]]
        new = s.new_sums(slices, v)
        of_page = [i for i in SLICES if SLICES[i] == word] if SUMS and MUT != 'sums_by_slice' else slices
        if any(lt != t for lt, _ in s.named(of_page)) and MUT != 'other_lane':
            return s.flip(slices, t, v)
        targets = {i: 1 - s.side(i) for i in slices}
        s.seq[t] += 1
        e = s.seq[t] % RING
        # All words so far: durable with this drain.
        batch = RING if MUT == 'batch_of_all' else RING // 2
        if MUT != 'no_batch' and s.seq[t] % batch == batch - 1:
            for (lt, le), (_, _, _, w) in s.live.items():
                if lt == t and s.durable_word[(lt, le)][0] == 0:
                    s.flush_word(w, t, 'sums_not_in_batch')
                    s.durable_word[(lt, le)] = (1, t)
        s.live.pop((t, e), None)
        sums = tuple((s.slot(i, targets[i]), v) for i in slices)
        for i in slices:
            s.through(s.slot(i, targets[i]), v, t)
        in_entry = new[word][1] if SUMS and MUT != 'sum_not_in_entry' else None
        body = (NOW, s.seq[t], word, tuple((i, targets[i]) for i in slices), sums, in_entry)
        s.through(f'b{t}{e}', body, t)
        s.through(f'h{t}{e}', ('is', NOW, s.seq[t]), t)
        if MUT == 'word_first':
            s.store(word, s.moved(word, slices))
            s.drain(t)
        else:
            s.drain(t)
            s.store(word, s.moved(word, slices))
        if SUMS and MUT != 'sum_not_stored':
            s.store(f'{word}{new[word][0]}', new[word][1])
        s.publish_sums(new)
        s.live[(t, e)] = (s.seq[t], tuple(slices), targets, word)
        s.durable_word[(t, e)] = (0, t)

    def before_words(s, slices, words, t, for_sums=False):
        """What every other way does: no record covers what it moves any more."""
        named = s.named(slices)
        if not named or MUT == ('older_sums' if for_sums else 'no_clear'):
            return []
        if MUT != 'no_settle':
            s.settle(words & {s.live[key][3] for key in named}, t)
        if MUT == 'clear_with_word':
            return named
        s.clear(named, t)
        return []

    def flip(s, slices, t, v):
        word = SLICES[slices[0]]
        new = s.new_sums(slices, v)
        s.store_sums(new, t)
        later = s.before_words(slices, {word}, t)
        for i in slices:
            s.through(s.slot(i, 1 - s.side(i)), v, t)
        s.drain(t)
        s.through(word, s.moved(word, slices), t)
        if MUT == 'sum_with_word':
            s.put_sums(new, t)
        s.clear(later, t)
        s.drain(t)
        s.publish_sums(new)

    def whole(s, t, v):
        """The first page as a whole, by the region word."""
        new = s.new_sums((0, 1), v)
        s.store_sums(new, t)
        later = s.before_words((0, 1), {'W'}, t)
        for i in (0, 1):
            s.through(s.slot(i, 1 - s.side(i)), v, t)
        s.drain(t)
        s.through('X', 1 - s.cur('X'), t)
        if MUT == 'sum_with_word':
            s.put_sums(new, t)
        s.clear(later, t)
        s.drain(t)
        s.publish_sums(new)

    def multi(s, t, v):
        """Slice 0 of one page and slice 2 of the other, by an undo entry (which is not torn here)."""
        new = s.new_sums((0, 2), v)
        s.store_sums(new, t)
        later = s.before_words((0, 2), {'W', 'V'}, t)
        for i in (0, 2):
            s.through(s.slot(i, 1 - s.side(i)), v, t)
        s.undo = None
        s.drain(t)
        s.undo = [('W', 0, s.cur('W')[0]), ('V', 2, s.cur('V')[2])]
        s.through('W', s.moved('W', (0,)), t)
        s.through('V', s.moved('V', (2,)), t)
        if MUT == 'sum_with_word':
            s.put_sums(new, t)
        s.clear(later, t)
        s.drain(t)
        s.publish_sums(new)
        s.undo = None
        s.check(s)

    def redo(s, slices, t, v, length=None):
        """Slices whose home slots a view pins. Those that are valid in the reflection file have no free slot: they
        stay, and their bytes go through the log. The others flip there. `length` is the new length, if it changes."""
        stays = [i for i in slices if s.side(i) == 1]
        flips = [i for i in slices if s.side(i) == 0]
        words = sorted({SLICES[i] for i in slices})
        new = s.new_sums(slices, v)
        s.store_sums(new, t)
        for i in flips:
            s.through(s.slot(i, 1), v, t)
        named = [] if MUT == 'redo_no_clear' else s.named(slices)
        if MUT != 'redo_no_clear':
            s.clear(s.before_words(slices, set(words), t), t)
        # The record must not be durable before what it builds on: the void entries, and the slices that flip.
        if named and MUT != 'redo_no_drain' or flips and MUT != 'redo_flips_no_drain':
            s.drain(t)
        elif SUMS and MUT != 'redo_no_drain_after_sums':
            s.drain(t)
        bits = () if MUT == 'redo_half_record' else tuple((i, 1) for i in flips)
        if length and MUT == 'length_first':
            s.through('L', length, t)
        in_record = None if MUT == 'no_length' else length
        s.through(f'l{t}', (in_record, tuple((i, v) for i in stays), bits), t)
        if MUT != 'redo_no_commit_drain':
            s.drain(t)
        for i in stays:
            s.through(s.slot(i, 1), v, t)
        for word in words:
            s.through(word, s.moved(word, [i for i in flips if SLICES[i] == word]), t)
        if length and MUT not in ('length_first', 'length_after_end'):
            s.through('L', length, t)
        if MUT == 'sum_with_word':
            s.put_sums(new, t)
        s.publish_sums(new)
        s.drain(t)
        s.through(f'l{t}', None, t)
        if length and MUT == 'length_after_end':
            s.through('L', length, t)
        if MUT != 'redo_no_end_drain':
            s.drain(t)

    def resize(s, slices, t, v):
        """Writes slices and makes the file longer by the second page, or shorter by it."""
        if s.cur('L') == 2:
            if MUT == 'cut_before_end':
                s.cut(t)
            s.redo([i for i in slices if SLICES[i] == 'W'], t, v, 1)
            s.cut(t)
        else:
            s.redo(slices, t, v, 2)

    def cut(s, t):
        """Zeroes what lies past the length, once no entry names it any more."""
        s.clear(s.before_words((2,), {'V'}, t), t)
        s.drain(t)
        s.through('V', (0, 0, 0), t)
        s.through('H2', 0, t)
        s.through('R2', 0, t)
        s.publish_sums({'V': (0, (0,))})
        for n in PLACES if SUMS else ():
            s.through(f'V{n}', (0,), t)
        s.drain(t)

    def punch(s, slices, t):
        """Deploys a page and gives its reflection slots back: they are holes from then on, durable at any time.
        Entries that name slices which are at home stay as they are, though they may name those slots."""
        word = SLICES[slices[0]]
        away = [i for i in slices if s.side(i)]
        if away:
            later = s.before_words(away, {word}, t)
            for i in away:
                s.through(s.slot(i, 0), s.cur(s.slot(i, 1)), t)
            s.drain(t)
            s.through(word, s.moved(word, away), t)
            s.clear(later, t)
            s.drain(t)
        for i in slices:
            s.store(s.slot(i, 1), 'hole')
        if word == 'W' and s.cur('X') == 1 and s.cur('W')[:2] == (1, 1):
            s.zero_words(t)
        if not SUMS and not any(s.cur(word)):
            s.punch_word(word, t)

    def zero_words(s, t):
        """The page is at home by set bits in both words. Its entries stay as they are."""
        s.drain(t)
        if MUT != 'zero_by_two_stores':
            s.undo = [('W', 0, 1), ('W', 1, 1), ('X', None, 1)]
        s.through('W', (0, 0, 0), t)
        s.through('X', 0, t)
        s.drain(t)
        s.undo = None
        s.check(s)

    def punch_word(s, word, t):
        """The hole reads as the zeroes that were there, and may be durable at any time."""
        if MUT != 'words_with_records':
            s.clear(s.before_words([i for i in SLICES if SLICES[i] == word], {word}, t), t)
            s.drain(t)
        s.store(word, (0, 0, 0))
        s.gone.add(word)

    undo = None

    def run(s, op):
        name, slices, t = op
        is_short = s.cur('L') == 1
        if is_short and 2 in slices and name != 'resize':
            return
        s.v += 1
        s.started += 1
        state = list(s.model[-1])
        if name == 'resize' and is_short:
            state[2] = 0
        if name != 'punch':
            for i in slices:
                state[i] = s.v
        if name == 'resize' and not is_short:
            state[2] = None
        s.model.append(tuple(state))
        if name == 'logged_flip':
            s.logged_flip(slices, t, s.v)
        elif name == 'flip':
            s.flip(slices, t, s.v)
        elif name == 'redo':
            s.redo(slices, t, s.v)
        elif name == 'punch':
            s.punch(slices, t)
        elif name == 'resize':
            s.resize(slices, t, s.v)
        elif name == 'whole':
            s.whole(t, s.v)
        else:
            s.multi(t, s.v)
        s.acked = s.started
        s.check(s)


def recover(m, undo):
    """What recovery stores: the words, and then what redo records say."""
    words = {w: list(m[w]) for w in 'WV'}
    region = m['X']
    restored = {}
    lengths = [m[f'l{t}'][0] for t in (0, 1) if m[f'l{t}'] and m[f'l{t}'][0]]
    length = lengths[0] if lengths and MUT != 'recover_by_word' else m['L']
    inside = lambda w: w == 'W' or length == 2
    for w, i, bit in undo or ():
        if w == 'X':
            region = bit
        elif inside(w):
            words[w][i] = bit
    bit_of = lambda w, side: side ^ (region if w == 'W' else 0)
    for t in (0, 1):
        entries, voids = [], []
        for e in range(RING):
            h, b = m[f'h{t}{e}'], m[f'b{t}{e}']
            # The checksum, in the body, covers the number and the session, but not the kind: 'is' or 'void'.
            of_header = (NOW if MUT == 'no_session' else h[1], h[2])
            is_whole = b[0] == NOW and of_header == b[:2]
            if not is_whole and (MUT != 'no_entry_sum' or b[0] != NOW):
                continue
            if h[0] == 'void':
                voids.append((b[1], b[2]))
            else:
                entries.append(b[1:])
        last = max([q for q, *_ in entries + voids], default=0)
        batch = RING // 2
        # The newest entry was begun when the words before this one were durable.
        needed = last - last % batch - 1 + (MUT == 'one_too_many') + batch * (MUT == 'this_batch')
        for b in sorted(entries, reverse=MUT == 'any_order'):
            seq, word, sides, sums, in_entry = b
            if seq < needed or not inside(word):
                continue
            if MUT == 'voids_lane' and any(seq < q for q, _ in voids):
                continue
            if MUT not in ('voids_lane', 'voids_none') and any(seq < q and w == word for q, w in voids):
                continue
            newest = seq == last
            verified = newest or MUT == 'verify_all'
            if MUT == 'no_data_check' or not verified or all(m[k] == v for k, v in sums):
                for i, side in sides:
                    words[word][i] = side if MUT == 'bits_in_entries' else bit_of(word, side)
                if SUMS and MUT != 'sum_not_restored':
                    restored.update({f'{word}{n}': in_entry for n in PLACES})
    first = {w: tuple(words[w]) for w in 'WV'} | restored | {'X': region}
    then = {}
    for t in (0, 1):
        if m[f'l{t}'] is None:
            continue
        new_length, stays, bits = m[f'l{t}']
        if new_length and MUT != 'length_not_redone':
            first['L'] = new_length
        for i, side in bits:
            if inside(SLICES[i]):
                words[SLICES[i]][i] = bit_of(SLICES[i], side)
                then[SLICES[i]] = tuple(words[SLICES[i]])
        for i, v in stays:
            # Over the valid slot.
            if inside(SLICES[i]):
                then['HR'[bit_of(SLICES[i], words[SLICES[i]][i])] + str(i)] = v
    return first, then


def read(m):
    is_there = lambda w: w == 'W' or m['L'] == 2
    slot = lambda w, i: 'HR'[m[w][i] ^ (m['X'] if w == 'W' else 0)] + str(i)
    for w in 'WV' if SUMS else '':
        held = tuple(m[slot(w, i)] for i, of in SLICES.items() if of == w)
        if is_there(w) and held not in [m[f'{w}{n}'] for n in PLACES]:
            return 'damaged', w, held
    return tuple(m[slot(w, i)] if is_there(w) else None for i, w in SLICES.items())


def parts(stores):
    keys = list(stores)
    for n in range(len(keys) + 1):
        for some in itertools.combinations(keys, n):
            yield {k: stores[k] for k in some}


def outcomes(m, undo):
    """After one recovery, and after a second one where the power went in the first."""
    first, then = recover(m, undo)
    yield read({**m, **first, **then})
    if not then:
        # Only words were stored, as the second recovery stores them again.
        return
    for half in ({**a, **b} for a in parts(first) for b in parts(then)):
        image = {**m, **half}
        again, more = recover(image, undo)
        yield read({**image, **again, **more})


class Check:
    def __init__(self, enough):
        self.images = self.bad = 0
        self.enough = enough
        self.ops = ()
        self.seen = set()

    def __call__(self, sim):
        if self.bad >= self.enough:
            return
        open_ = [k for k in sim.c if len(set(sim.c[k])) > 1]
        ok = set(sim.model[sim.acked:sim.started + 1])
        key = (tuple((k, tuple(v)) for k, v in sim.c.items()), frozenset(ok), repr(sim.undo))
        if key in self.seen:
            return
        self.seen.add(key)
        base = {k: v[-1] for k, v in sim.c.items()}
        for combo in itertools.product(*(dict.fromkeys(sim.c[k]) for k in open_)):
            m = dict(base)
            m.update(zip(open_, combo))
            self.images += 1
            got = next((got for got in outcomes(m, sim.undo) if got not in ok), None)
            if got is not None:
                self.bad += 1
                if self.bad == 1:
                    print(f'  {self.ops}: {got}, may be {ok}')
                return

    def fail(self, what):
        self.bad += 1
        if self.bad == 1:
            print(f'  {self.ops}: {what}')

    def run(self, ops):
        self.ops = ops
        sim = Sim()
        sim.check = self
        for op in ops:
            sim.run(op)
            if self.bad >= self.enough:
                return


KINDS = [('logged_flip', (0,), 0), ('logged_flip', (0, 1), 0), ('logged_flip', (1,), 1), ('logged_flip', (2,), 0),
         ('logged_flip', (1,), 0), ('logged_flip', (0,), 1), ('flip', (0, 1), 0), ('flip', (0,), 1), ('multi', (0, 2), 1),
         ('punch', (0, 1), 1), ('punch', (2,), 0), ('redo', (0,), 1), ('redo', (0, 1), 0), ('resize', (0,), 0),
         ('resize', (0, 2), 1), ('whole', (0, 1), 0)]


def run(depth, mutant, ring, enough=5, many=400, sums=False):
    global MUT, RING, SUMS
    MUT, RING, SUMS = mutant, ring, sums
    check = Check(enough)
    for n in range(1, depth + 1):
        for ops in itertools.product(KINDS, repeat=n):
            check.run(ops)
            if check.bad >= enough:
                break
    rng = random.Random(7)
    for _ in range(many):
        if check.bad < enough:
            check.run([rng.choice(KINDS) for _ in range(2 * RING + 4)])
    with_sums = ', with sums' if sums else ''
    print(f'{mutant}: ring of {ring}, depth {depth}{with_sums}, {check.images} images, {check.bad} violations',
          flush=True)
    return check.bad


if __name__ == '__main__':
    if sys.argv[1:2] == ['--all']:
        depth = int(sys.argv[2]) if len(sys.argv) > 2 else 3
        wrong = sum(run(depth, 'none', ring) for ring in (2, 4))
        wrong += sum(run(depth - 1, 'none', ring, sums=True) for ring in (2, 4))
        for m, sums in [(m, False) for m in MUTANTS] + [(m, True) for m in WITH_SUMS]:
            depths = range(1, depth + 1 - sums)
            found = any(run(d, m, ring, 1, sums=sums) for ring in (2, 4) for d in depths)
            wrong += not found
            if not found:
                print(f'  NOT FOUND: {m}: {(MUTANTS | WITH_SUMS)[m]}')
        sys.exit(wrong != 0)
    depth = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    mutant = sys.argv[2] if len(sys.argv) > 2 else 'none'
    ring = int(sys.argv[3]) if len(sys.argv) > 3 else 2
    sums = mutant in WITH_SUMS
    sys.exit((run(depth, mutant, ring, sums=sums) != 0) != (mutant != 'none'))
