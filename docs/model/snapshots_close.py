#!/usr/bin/env python3
"""Brute-force check of a spatial close with live snapshots, and of what follows.

A file has two slices, and one live snapshot. Slice a was written after the seal. Slice b was not,
so the snapshot reads it from the home file, before the close and after it. The close leaves the
store beside the home file, with a close record: the session, and times of the home file. The steps
and the judgement of the next opening are modelled as in `opening.py`. Names, bytes, times, mark,
superblock and the parts of the store are *items*. At a loss of power each item has any value that
it had since the last barrier that covers it. After a process death it has its newest value.

Each scenario runs on a page cache and on Dax, with marks (extended attributes) and without. After
the close the file is opened again as a new pair; or another program edits it first, with the time
of the file or with the old mtime put back; or the store is missing, for ever or for a while; or an
earlier copy of the store is in its place; or the user removes the reflection file.

The next opening must find the file as it was. It must find the snapshot as well, as long as nothing
outside has happened. After that it may refuse the snapshot, and leaves the store as it is. It must
never show anything else as the snapshot.

Two premises: the bytes of an edit and its times arrive together, and so do a mark and its ctime.

Usage: snapshots_close.py [MUTANT]      or: snapshots_close.py --all
"""
import itertools
import sys

from opening import now, sets, sync

FILES = {
    'home': ['home_a', 'home_b', 'inode'],          # with the mark and the times
    'refl': ['refl_a', 'word', 'durable', 'super', 'settled'],
    'journal': ['journal'],
    'store': ['kept_a', 'kept_b', 'record'],
    'folder': ['refl_name', 'journal_name'],
}
# The pair is in use. The last point or commit has moved slice a to the reflection file, and kept
# what the snapshot needs: that is durable.
START = {
    'home_a': 'a0', 'home_b': 'b0', 'inode': (0, 0, 'in use'), 'refl_a': 'a1',
    'word': 'refl', 'durable': 'refl', 'super': 'in use', 'settled': True, 'journal': None,
    'kept_a': 'a0', 'kept_b': None, 'record': None, 'refl_name': True, 'journal_name': True,
    'store_name': True,
}
SNAPSHOT = ('a0', 'b0')
NONE = 'no snapshot'
CLOSE = [
    sets('deploy', home_a='a1', mtime=1, ctime=1),
    sync('drain', 'dax'),
    sets('words', word='home'),
    sets('closing', mark='closing 5', ctime=2),
    sync('sync_home', 'home'),
    sets('record', record=(5, 1, 2)),
    sync('sync_record', 'store'),
    sets('emptied', super='emptied'),             # without marks only
    sync('sync_emptied', 'emptied'),
    sets('remove_journal', journal_name=False),
    sets('remove_refl', refl_name=False),
    sync('sync_removal', 'folder'),
    now('is_removed'),
]
MAKE_PAIR = [
    ('new_files', 'new', ['refl', 'journal']),
    sets('make_refl', super='first'),
    sync('sync_refl', 'refl'),
    sets('rename', refl_name=True),
    sets('make_journal', journal_name=True),
    sync('sync_folder', 'folder'),
]
TAKE = [sets('take_record', record=('taken', 5, 1, 2)), sync('sync_taken', 'store')]
BEGIN = [
    sets('mark', mark='in use', ctime=9),
    sync('sync_mark', 'home'),
    sets('settle', settled=True),
    sync('sync_settled', 'refl'),                 # (nothing waits for it: only fewer images)
]
NEW_PAIR = MAKE_PAIR + TAKE + BEGIN
# A pair that has refused the snapshots. Its superblock says that it has none.
PLAIN_PAIR = [('make_refl', '=', {'super': 'first, none'}) if step[0] == 'make_refl' else step
              for step in MAKE_PAIR] + BEGIN
# The keep is durable before the word. Then the home slot is free.
WRITES = [
    sets('keep_b', kept_b='b0'),
    sync('sync_keep_b', 'store'),
    sets('write_b', home_b='b2', mtime=3, ctime=10),
    now('written', b='b2'),
]
EDIT = [sets('edit', home_b='edited', mtime=2, ctime=5), now('edited', outside=True)]
QUIET = [sets('edit', home_b='edited', ctime=5), now('edited', outside=True)]
LOSE = [('lose_store', '=', {'store_name': False}), now('lost', outside=True)]
# An opening that misses the store says so in its superblock, before it stores to slots.
BACK = LOSE + [
    sets('note', super='none'), sync('sync_note', 'refl'),
    sets('write_b', home_b='b2', mtime=3, ctime=10),
    ('store_comes_back', '=', {'store_name': True}), now('is_back', outside=True),
]
SCENARIOS = {
    'again': CLOSE + NEW_PAIR + WRITES,
    'edited': CLOSE + EDIT + PLAIN_PAIR,
    'quiet': CLOSE + QUIET + PLAIN_PAIR,
    'missing': CLOSE + LOSE,
    'missing_later': CLOSE + NEW_PAIR + LOSE,
    'back': CLOSE + NEW_PAIR + BACK,
    'stale': CLOSE + [('old_store', '=', {'record': (3, 1, 2), 'kept_a': 'a-'}),
                      now('stale', outside=True)],
}
MUTANTS = {
    'drain': None, 'closing': None, 'sync_home': None, 'record': None, 'sync_record': None,
    'emptied': None, 'sync_emptied': None, 'take_record': None, 'sync_taken': None,
    'sync_refl': None, 'sync_folder': None, 'keep_b': None, 'sync_keep_b': None, 'note': None,
    'sync_note': None,
    'record_after_removal': ('sync_record', 'remove_refl'),
    'record_after_emptied': ('sync_record', 'sync_emptied'),
    'emptied_before_home': ('sync_home', 'sync_emptied'),
    'removed_before_home': ('sync_home', 'remove_refl'),
    'taken_before_pair': ('sync_folder', 'sync_taken'),
    'taken_after_mark': ('sync_taken', 'sync_mark'),
    # Rules of the close and of the next opening.
    'record_before_mark': 'rule', 'record_needs_no_reflection': 'rule',
    'ctime_not_compared': 'rule', 'session_not_compared': 'rule', 'record_not_needed': 'rule',
    'record_beside_pair': 'rule', 'taken_is_void': 'rule', 'taken_by_ctime': 'rule',
    'taken_without_times': 'rule',
    'unsettled_pair_counts': 'rule', 'none_not_looked_at': 'rule',
}
# The times are those after the mark, and no sync changes them. Each edit changes ctime. A slot of
# the home file is stored to only when what it had is kept, durably: so a taken record stays true.
HARMLESS = {'record_before_home': ('sync_home', 'sync_record'), 'mtime_not_compared': 'rule',
            'taken_counts_alone': 'rule'}
MODES = [dict(dax=d, marks=m) for d in (False, True) for m in (False, True)]


def steps_of(scenario, mode, mutant):
    found = SCENARIOS[scenario]
    order = {**MUTANTS, **HARMLESS}.get(mutant, 'none')
    if order is None:
        found = [step for step in found if step[0] != mutant]
    if isinstance(order, tuple):
        early, late = order
        names = [name for name, *_ in found]
        if early in names and late in names:
            found = list(found)
            here, there = names.index(early), names.index(late)
            # With the store that it waits for.
            count = 2 if here and found[here - 1][1] == '=' and early != 'mark' else 1
            moved = found[here + 1 - count:here + 1]
            del found[here + 1 - count:here + 1]
            there = 1 + next(i for i, step in enumerate(found) if step[0] == late)
            found[there:there] = moved
    out = []
    for name, kind, what in found:
        if name in ('emptied', 'sync_emptied') and mode['marks']:
            continue
        if name in ('closing', 'mark', 'sync_mark') and not mode['marks']:
            continue
        if name in ('remove_journal', 'make_journal', 'drain') and (name == 'drain') != mode['dax']:
            continue
        if kind == 'sync':
            what = {'dax': 'home', 'emptied': 'refl'}.get(what, what)
        if kind == '=':
            what = dict(what)
            if name == 'words' and mode['dax']:
                what['durable'] = 'home'
            if name in ('record', 'take_record'):
                # Without marks nothing changes ctime after deployment.
                is_early = not mode['marks'] or mutant == 'record_before_mark'
                what['record'] = (*what['record'][:-1], 1 if is_early else 2)
        out.append((name, kind, what))
    return out


def opening(disk, power, mode, mutant):
    """The file and the snapshot that the next opening finds. A text instead of one: it refuses."""
    mark, said = disk['mark'] if mode['marks'] else None, disk['super']
    is_first = said in ('first', 'first, none')
    has_refl = disk['refl_name'] and said is not None
    has_all = has_refl and (mode['dax'] or disk['journal_name'])
    plain = not has_refl or said == 'emptied'
    if mode['marks']:
        if mark == 'in use' and not has_all:
            return 'refused: a companion is gone', None
        plain = mark == 'closing 5' and (not has_all or is_first)
        if mutant == 'record_needs_no_reflection' and has_refl and said == 'in use':
            plain = False
        if is_first and not disk['settled']:
            plain = True
    elif is_first and not disk['settled']:
        plain = True                              # nothing was stored to this pair
    if is_first and has_refl and mutant == 'unsettled_pair_counts':
        plain = False
    if mutant == 'record_beside_pair' and disk['record'] not in (None, 'torn'):
        plain = True
    found = disk['kept_a'] or disk['home_a'], disk['kept_b'] or disk['home_b']
    if not disk['store_name']:
        found = NONE
    if not plain:
        if not has_all and said == 'in use':
            return 'refused: the journal is gone', None
        slot = disk['durable'] if power else disk['word']
        if is_first or said == 'emptied':
            slot = 'home'
        a = disk['home_a'] if slot == 'home' else disk['refl_a']
        if said in ('first, none', 'none') and mutant != 'none_not_looked_at':
            found = NONE
        return (a, disk['home_b']), found
    content = (disk['home_a'], disk['home_b'])
    if found != NONE and mutant != 'record_not_needed':
        found = found if record_counts(disk, mode, mutant, has_refl and is_first) else NONE
    return content, found


def record_counts(disk, mode, mutant, has_new_pair):
    """The close record, against a home file that counts alone."""
    record = disk['record']
    if record in (None, 'torn'):
        return False
    # A taken record counts beside the pair that took it, as long as nothing was stored there.
    is_taken = record[0] == 'taken'
    if is_taken and mutant == 'taken_is_void':
        return False
    if is_taken and not has_new_pair and mutant != 'taken_counts_alone':
        return False
    session, mtime, ctime = record[-3:]
    if mode['marks'] and session != 5 and mutant != 'session_not_compared':
        return False
    if is_taken and mutant == 'taken_without_times':
        return True
    if mtime != disk['mtime'] and mutant != 'mtime_not_compared':
        return False
    # The mark of the pair that took the record has changed ctime.
    is_marked = is_taken and disk['mark'] == 'in use' and mutant != 'taken_by_ctime'
    return ctime == disk['ctime'] or is_marked or mutant == 'ctime_not_compared'


def right(found, outside):
    """The snapshot as it was. After something outside it may be refused."""
    if found == SNAPSHOT:
        return True
    return outside and found == NONE


def whole(disk):
    """An image by its items, with those of the inode."""
    return {**disk, **dict(zip(('mtime', 'ctime', 'mark'), disk['inode']))}


def check_scenario(scenario, mode, mutant):
    kept = {item: [value] for item, value in START.items()}
    files, outside, images, bad = {('a1', 'b0')}, False, 0, []

    def tell(name, what, found):
        bad.append((scenario, mode, name, what, found))

    def judge(name, disk, what, power):
        nonlocal images
        images += 1
        content, found = opening(disk, power, mode, mutant)
        if content not in files:
            tell(name, what, content)
        elif not right(found, outside):
            tell(name, what, found)
    for name, kind, what in steps_of(scenario, mode, mutant):
        if kind == '=':
            old, inode = kept['inode'][-1], ('mtime', 'ctime', 'mark')
            new = tuple(what.get(name, value) for name, value in zip(inode, old))
            if new != old:
                kept['inode'] = kept['inode'] + [new]
            for item, value in what.items():
                if item in inode:
                    continue
                # What other programs do to the store is there at once.
                at_once = name in ('lose_store', 'old_store', 'store_comes_back')
                kept[item] = [value] if at_once else kept[item] + [value]
            for item in ('home_a', 'home_b'):
                if item in what and name != 'edit':
                    kept[item].insert(-1, 'torn')
            for item in ('kept_b', 'record'):
                if what.get(item) and name not in ('old_store', 'take_record'):
                    kept[item].insert(-1, None if item != 'record' else 'torn')
            if name == 'write_b':
                files = files | {('a1', 'torn'), ('a1', 'b2')}
            if name in ('edit', 'old_store', 'lose_store'):
                outside = True
                files = files | ({('a1', 'edited')} if name == 'edit' else set())
        elif kind == 'new':
            for item in sum((FILES[file] for file in what), []):
                kept[item] = [{'word': 'home', 'durable': 'home'}.get(item)]
        elif kind == 'sync':
            for item in FILES[what]:
                kept[item] = kept[item][-1:]
        newest = {item: values[-1] for item, values in kept.items()}
        judge(name, whole(newest), 'process', False)
        for values in itertools.product(*(dict.fromkeys(kept[item]) for item in kept)):
            disk = whole(dict(zip(kept, values)))
            is_late = scenario in ('edited', 'quiet') and disk['ctime'] in (5, 9)
            if is_late != (disk['home_b'] == 'edited'):
                continue                          # bytes and times of an edit come together
            judge(name, disk, 'power', True)
            is_new = scenario == 'again' and disk['super'] == 'first' and not disk['settled']
            if is_new and disk['mark'] != 'in use':
                # Another program edits the file before it is opened again.
                for mtime in (2, disk['mtime']):
                    edited = dict(disk, home_b='edited', mtime=mtime, ctime=5)
                    _, found = opening(edited, True, mode, mutant)
                    images += 1
                    if not right(found, True):
                        tell(name, 'edited', found)
            if scenario == 'again' and name in ('settle', 'keep_b', 'write_b', 'written'):
                # The user removes reflection file and journal.
                images += 1
                gone = dict(disk, refl_name=False, journal_name=False, journal=None)
                content, found = opening(gone, True, mode, mutant)
                if content != 'refused: a companion is gone' and not right(found, True):
                    tell(name, 'removed', found)
    return images, bad


def check(mutant):
    images, bad = 0, []
    for mode in MODES:
        for scenario in SCENARIOS:
            if scenario == 'stale' and not mode['marks']:
                continue                          # nothing tells an earlier store there
            more, found = check_scenario(scenario, mode, mutant)
            images += more
            bad += found
    return images, bad


def run(mutant):
    images, bad = check(mutant)
    first = ''
    if bad:
        scenario, mode, name, what, found = bad[0]
        mode = ', '.join([m for m in mode if mode[m]] or ['page cache'])
        first = f', first in {scenario} ({mode}) after {name} ({what}): {found}'
    print(f'{mutant}: {images} images, {len(bad)} violations{first}')
    return bool(bad)


if __name__ == '__main__':
    if sys.argv[1:2] == ['--all']:
        wrong = run('none')
        for mutant in HARMLESS:
            wrong |= run(mutant)
        for mutant in MUTANTS:
            found = run(mutant)
            wrong |= not found
            if not found:
                print(f'  NOT FOUND: {mutant}')
        sys.exit(wrong)
    mutant = sys.argv[1] if len(sys.argv) > 1 else 'none'
    sys.exit(run(mutant) != (mutant in MUTANTS))
