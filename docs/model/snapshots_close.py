#!/usr/bin/env python3
"""Brute-force check of the last steps of a spatial close with live snapshots, and of what follows.

A file has two slices, and one live snapshot. Slice a was written after the seal. Slice b was not,
so the snapshot reads it from the home file, before the close and after it. The store is the fourth
file: a table, kept bytes, a close record, and sums where they are on. The steps and the judgement
of the next opening are modelled as in `opening.py`. Names, bytes, times, mark, superblock and the
parts of the store are *items*. At a loss of power each item has any value that it had since the
last barrier that covers it. After a process death it has its newest value.

Each scenario runs on a page cache and on Dax, with marks (extended attributes) and without, with
sums and without. After the close the file is opened again as a new pair; or another program edits
it first, with the time of the file or with the old time put back; or the store is missing; or an
earlier copy of the store is in its place; or the user removes the reflection file.

The next opening must find the file as it was. It must find the snapshot as well, as long as nothing
outside has happened. After that it may refuse the snapshot, or a page of it by its sum. It must
never show anything else as the snapshot.

Usage: snapshots_close.py [MUTANT]      or: snapshots_close.py --all
"""
import itertools
import sys

from opening import now, sets, sync

FILES = {
    'home': ['home_a', 'home_b', 'home_time', 'mark'],
    'refl': ['refl_a', 'word', 'durable', 'super', 'settled'],
    'journal': ['journal'],
    'store': ['kept_a', 'kept_b', 'table', 'record', 'sum_b'],
    'folder': ['refl_name', 'journal_name'],
}
# The pair is in use. The last point or commit has moved slice a to the reflection file.
START = {
    'home_a': 'a0', 'home_b': 'b0', 'home_time': 0, 'mark': 'in use', 'refl_a': 'a1',
    'word': 'refl', 'durable': 'refl', 'super': 'in use', 'settled': True, 'journal': None,
    'kept_a': None, 'kept_b': None, 'table': 'live', 'record': None, 'sum_b': None,
    'refl_name': True,
    'journal_name': True, 'store_name': True,
}
SNAPSHOT = ('a0', 'b0')
NONE = 'no snapshot'
CLOSE = [
    sets('keep', kept_a='a0'),
    sync('sync_keep', 'store'),
    sets('deploy', home_a='a1', home_time=1),
    sync('drain', 'dax'),
    sets('words', word='home'),
    sets('closing', mark='closing 5'),
    sync('sync_home', 'home'),
    sets('record', record=(5, 1), sum_b='b0'),
    sync('sync_record', 'store'),
    sets('emptied', super='emptied'),             # without marks only
    sync('sync_emptied', 'emptied'),
    sets('remove_journal', journal_name=False),
    sets('remove_refl', refl_name=False),
    sync('sync_removal', 'folder'),
    now('is_removed'),
]
NEW_PAIR = [
    ('new_files', 'new', ['refl', 'journal']),
    sets('make_refl', super='first'),
    sync('sync_refl', 'refl'),
    sets('rename', refl_name=True),
    sets('make_journal', journal_name=True),
    sync('sync_folder', 'folder'),
    sets('mark', mark='in use'),
    sync('sync_mark', 'home'),
    sets('take_record', record=('taken', 5, 1)),
    sync('sync_taken', 'store'),
    sets('settle', settled=True),
    sync('sync_settled', 'refl'),                 # (nothing waits for it: only fewer images)
]
# The first point keeps b in its record, or Dax keeps it in the store. Then its home slot is free.
WRITES = [
    sets('keep_b', kept_b='b0'),
    sync('sync_keep_b', 'kept_b'),
    sets('write_b', home_b='b2', home_time=3),
    now('written', b='b2'),
]
EDIT = [sets('edit', home_b='edited', home_time=2), now('edited', b='edited', outside=True)]
QUIET = [sets('edit', home_b='edited'), now('edited', b='edited', outside=True)]
# An opening that has found an edit. It drops all snapshots before the pair is in use.
REFUSE = [sets('refuse', table='none', record=None), sync('sync_refuse', 'store')]
SCENARIOS = {
    'again': CLOSE + NEW_PAIR + WRITES,
    'edited': CLOSE + EDIT + REFUSE + NEW_PAIR,
    'quiet': CLOSE + QUIET + NEW_PAIR,
    'missing': CLOSE + [('lose_store', '=', {'store_name': False}), now('lost', outside=True)],
    'missing_later': CLOSE + NEW_PAIR + [('lose_store', '=', {'store_name': False}),
                                         now('lost', outside=True)],
    'stale': CLOSE + [('old_store', '=', {'record': (3, 1), 'kept_a': 'a-', 'sum_b': 'b0'}),
                      now('stale', outside=True)],
}
MUTANTS = {
    'keep': None, 'sync_keep': None, 'drain': None, 'closing': None, 'sync_home': None,
    'record': None, 'sync_record': None, 'emptied': None, 'sync_emptied': None, 'refuse': None,
    'sync_refuse': None,
    'take_record': None, 'sync_taken': None, 'sync_refl': None, 'sync_folder': None,
    'deployed_before_keep': ('sync_keep', 'sync_home'),
    'record_after_removal': ('sync_record', 'remove_refl'),
    'record_after_emptied': ('sync_record', 'sync_emptied'),
    'emptied_before_home': ('sync_home', 'sync_emptied'),
    'removed_before_home': ('sync_home', 'remove_refl'),
    'taken_before_pair': ('sync_folder', 'sync_taken'),
    'refused_after_mark': ('sync_refuse', 'sync_mark'),
    # Rules of the next opening.
    'record_needs_no_reflection': 'rule', 'time_not_compared': 'rule',
    'session_not_compared': 'rule',
    'sums_not_compared': 'rule', 'missing_store_taken': 'rule', 'record_not_needed': 'rule',
    'record_beside_pair': 'rule', 'taken_counts_alone': 'rule', 'taken_is_void': 'rule',
    'unsettled_pair_counts': 'rule',
}
HARMLESS = {'record_before_home': ('sync_home', 'sync_record')}
MODES = [dict(dax=d, marks=m, sums=s) for d in (False, True) for m in (False, True)
         for s in (False, True)]


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
        if name in ('closing', 'mark') and not mode['marks']:
            continue
        if name in ('remove_journal', 'make_journal', 'drain') and (name == 'drain') != mode['dax']:
            continue
        if kind == 'sync':
            what = {'dax': 'home', 'emptied': 'refl'}.get(what, what)
            what = ('store' if mode['dax'] else 'journal') if what == 'kept_b' else what
        if kind == '=':
            what = dict(what)
            if name == 'keep_b' and not mode['dax']:
                what = {'journal': 'b0'}
            if name == 'words' and mode['dax']:
                what['durable'] = 'home'
            if name in ('refuse', 'sync_refuse') and mode['sums']:
                continue
            if not mode['sums']:
                what.pop('sum_b', None)
        out.append((name, kind, what))
    return out


def snapshot(disk, mode, mutant, plain):
    """What an opening shows as the snapshot."""
    if disk['table'] == 'none':
        return NONE
    a, b = disk['kept_a'] or disk['home_a'], disk['kept_b'] or disk['home_b']
    if not plain:
        b = disk['kept_b'] or disk['journal'] or disk['home_b']
    if mode['sums'] and disk['sum_b'] not in (None, b) and mutant != 'sums_not_compared':
        b = 'damaged'
    return a, b


def opening(disk, power, mode, mutant):
    """The file and the snapshot that the next opening finds. A text instead of one: it refuses."""
    mark, said = disk['mark'] if mode['marks'] else None, disk['super']
    has_refl = disk['refl_name'] and said is not None
    has_all = has_refl and (mode['dax'] or disk['journal_name'])
    plain = not has_refl or said == 'emptied'
    if mode['marks']:
        if mark == 'in use' and not has_all:
            return 'refused: a companion is gone', None
        plain = mark == 'closing 5' and (not has_all or said == 'first')
        if mutant == 'record_needs_no_reflection' and has_refl and said == 'in use':
            plain = False
    elif said == 'first' and not disk['settled']:
        plain = True                              # nothing was stored to this pair
    if said == 'first' and has_refl and mutant == 'unsettled_pair_counts':
        plain = False
    if mutant == 'record_beside_pair' and disk['record'] not in (None, 'torn'):
        plain = True
    if not disk['store_name'] and mutant != 'missing_store_taken':
        # The mark, or the superblock, says that there are snapshots.
        if mode['marks'] or not plain:
            return 'refused: the store is gone', None
        return (disk['home_a'], disk['home_b']), NONE
    if not plain:
        if not has_all and said == 'in use':
            return 'refused: the journal is gone', None
        slot = disk['durable'] if power else disk['word']
        if said == 'first':
            slot = 'home'
        if said == 'emptied':
            slot = 'home'
        a = disk['home_a'] if slot == 'home' else disk['refl_a']
        found = snapshot(disk, mode, mutant, False)
        if slot == 'refl' and not disk['kept_a'] and found != NONE:
            found = disk['home_a'], found[1]
        return (a, disk['home_b']), found
    content = (disk['home_a'], disk['home_b'])
    record = disk['record']
    if mutant != 'record_not_needed':
        if record in (None, 'torn'):
            return content, NONE
        # A taken record counts beside the pair that took it, as long as nothing was stored there.
        is_taken = record[0] == 'taken'
        if is_taken and mutant == 'taken_is_void':
            return content, NONE
        if is_taken and not (has_refl and said == 'first') and mutant != 'taken_counts_alone':
            return content, NONE
        session, time = record[-2:]
        if mode['marks'] and session != 5 and mutant != 'session_not_compared':
            return content, NONE
        is_edited = time != disk['home_time'] and mutant != 'time_not_compared'
        if is_edited and not mode['sums']:
            return content, NONE
    return content, snapshot(disk, mode, mutant, True)


def right(found, outside):
    """The snapshot as it was. After an edit it may be refused, as a whole or by page."""
    if found == SNAPSHOT:
        return True
    return outside and (found == NONE or all(x in (y, 'damaged') for x, y in zip(found, SNAPSHOT)))


def check_scenario(scenario, mode, mutant):
    kept = {item: [value] for item, value in START.items()}
    if not mode['marks']:
        kept['mark'] = [None]
    files, outside, images, bad = {('a1', 'b0')}, False, 0, []

    def tell(name, what, found):
        bad.append((scenario, mode, name, what, found))

    def judge(name, disk, what, power):
        nonlocal images
        images += 1
        content, found = opening(disk, power, mode, mutant)
        gone = 'refused: the store is gone'
        if scenario.startswith('missing') and outside and (mode['marks'] or content == gone):
            if content != gone:
                tell(name, what, 'a missing store is not told')
            return
        if content not in files:
            tell(name, what, content)
        elif not right(found, outside):
            tell(name, what, found)
    for name, kind, what in steps_of(scenario, mode, mutant):
        if kind == '=':
            for item, value in what.items():
                # What other programs do to the store is there at once.
                at_once = name in ('lose_store', 'old_store')
                kept[item] = [value] if at_once else kept[item] + [value]
            for item in ('home_a', 'home_b'):
                if item in what and name != 'edit':
                    kept[item].insert(-1, 'torn')
            for item in ('kept_a', 'kept_b', 'record', 'journal'):
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
        judge(name, newest, 'process', False)
        # A file system may order the bytes of an edit and its time in any way. Without sums the
        # model assumes that they come together: else nothing tells the edit.
        together = outside and scenario == 'edited' and not mode['sums']
        for values in itertools.product(*(dict.fromkeys(kept[item]) for item in kept)):
            disk = dict(zip(kept, values))
            if together and (disk['home_b'] == 'edited') != (disk['home_time'] == 2):
                continue
            judge(name, disk, 'power', True)
            is_new = scenario == 'again' and disk['super'] == 'first' and not disk['settled']
            if is_new and disk['mark'] != 'in use':
                # Another program edits the file before it is opened again.
                edited = dict(disk, home_b='edited', home_time=2)
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
            # Nothing tells an earlier store without marks, nor a quiet edit without sums.
            needs = {'quiet': 'sums', 'stale': 'marks'}.get(scenario)
            if needs and not mode[needs]:
                continue
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
