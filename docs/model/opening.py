#!/usr/bin/env python3
"""Brute-force check of the barriers that open a new pair on page cache, close it and open it again.

A file's name, bytes, length, attribute and superblock are *items*. A step changes an item in the cache. A barrier
makes all items of one file, or all names of the folder, durable. At a loss of power each item has, independently, any
value that it had since the last barrier that covers it. After a crash of the process each item has its newest value.
The next opening then judges what it finds, as the pair table does. It must never refuse. It must find the state that
counts: after a loss of power the plain file before the first point, and the last point from then on; after a crash of
the process the newest state; and a complete home file after the spatial close.

The *byte mark* is a mark in the home file's bytes, in a slice whose valid slot is in the reflection file. The home
file is also copied alone at every step, without its attributes and its companions. The opening of that copy must refuse
it, or find the newest state. A loss of power in a spatial close may leave another copy: the mark goes with the deployed
bytes, by one sync.

Usage: opening.py [MUTANT]      or: opening.py --all
"""
import itertools
import sys

# Each item, by what makes it durable.
FILES = {
    'home': ['home_slot', 'home_time', 'home_len', 'byte_mark', 'mark'],
    'refl': ['refl_made', 'refl_slot', 'word', 'durable', 'super', 'settled', 'floor'],
    'journal': ['journal'],
    'record': ['record'],          # one write that waits for its own block
    'floor': ['floor'],            # so is the floor of the journal,
    'header': ['journal'],         # and the header of a later session
    'folder': ['refl_name', 'journal_name'],
}
START = {
    'home_slot': 'old', 'home_time': 0, 'home_len': 'short', 'byte_mark': False, 'mark': None,
    'refl_made': False, 'refl_slot': None,
    'word': 'home', 'durable': 'home', 'super': None, 'settled': None, 'floor': 0, 'journal': None, 'record': 0,
    'refl_name': False, 'journal_name': False,
}


def sets(name, **items):
    return name, '=', items


def sync(name, what):
    return name, 'sync', what


def now(name, **what):
    return name, 'now', what


# The superblock is in use from the beginning, and says that it is not settled.
OPEN = [
    sets('lengthen', home_len='base'),
    sets('make_refl', refl_made=True, super='first'),
    sync('sync_refl', 'refl'),
    sets('rename', refl_name=True),
    sets('make_journal', journal='zeroes', journal_name=True),
    sync('sync_folder', 'folder'),
    sets('byte_mark', byte_mark=True),
    sets('mark', mark='in use'),
    sync('sync_mark', 'home'),
    sets('settle', settled='first'),
    now('opened'),
]
# A write and a growth before the first point, then the point. Writers wait until the floor is durable.
FIRST_POINT = [
    sets('write', refl_slot='new', word='refl'),
    now('written', working='new'),
    sets('grow', home_len='longer'),
    sets('header', journal='header of 1'),
    sync('sync_header', 'journal'),
    sets('record', record=1),
    sync('sync_record', 'record'),
    sets('floor', floor=1),
    sync('sync_floor', 'floor'),
    sets('publish', durable='refl'),
    now('point', durable='new'),
]
SECOND_POINT = [
    sets('write_2', home_slot='newer', home_time=1, word='home'),
    now('written_2', working='newer'),
    sets('record_2', record=2),
    sync('sync_record_2', 'record'),
    sets('publish_2', durable='home'),
    now('point_2', durable='newer'),
]
FAST = [
    sync('sync_home', 'home'),
    sets('closed', super='closed'),
    sync('sync_closed', 'refl'),
    sets('settle_closed', settled='closed'),
    now('is_closed'),
]


def reopen(first):
    """The next opening. Its header names the first session whose records the journal holds."""
    return [
        sync('sync_found', 'refl'),
        sets('next_header', journal=f'header of {first} to 3'),
        sync('sync_next_header', 'header'),
        sets('begin', super='next'),
        sync('sync_begin', 'refl'),
        sets('write_3', refl_slot='newest', word='refl'),
        now('written_3', working='newest'),
    ]


SPATIAL = [
    sets('deploy', home_slot='new', home_time=1, word='home'),
    sets('unset', byte_mark=False),
    sets('closing', mark='closing'),
    sync('sync_home', 'home'),
    sets('remove_journal', journal_name=False),
    sets('remove_refl', refl_name=False),
    sync('sync_removal', 'folder'),
    sets('unmark', mark=None),
    now('is_removed', is_removed=True),
]
# A new pair after a spatial close, before the removal of the mark is durable. Its files are new ones.
AGAIN = SPATIAL + [
    ('new_files', 'new', ['refl', 'journal']),
    sets('make_refl_2', refl_made=True, super='again'),
    sync('sync_refl_2', 'refl'),
    sets('rename_2', refl_name=True),
    sets('make_journal_2', journal='zeroes', journal_name=True),
    sync('sync_folder_2', 'folder'),
    sets('byte_mark_2', byte_mark=True),
    sets('mark_2', mark='in use again'),
    sync('sync_mark_2', 'home'),
    sets('settle_2', settled='again'),
    now('opened_2'),
    sets('write_again', refl_slot='newer', word='refl'),
    now('written_again', working='newer'),
]
# The process dies in the middle of an opening. The next one goes on by the mark, and syncs what is not settled.
DIED = OPEN[:8] + [
    now('died'),
    sync('sync_found', 'refl'),
    sets('next_header', journal='header of 1 to 3'),
    sync('sync_next_header', 'journal'),
    sync('sync_mark_again', 'home'),
    sets('begin', super='next'),
    sync('sync_begin', 'refl'),
    now('opened'),
]
# An opening after a loss of power in the sync of a fast close, which has torn what that sync covers.
TORN = dict(START, home_slot='newer', home_time=1, home_len='longer', byte_mark=True, mark='in use',
            refl_made=True, refl_slot='torn', word='refl', durable='refl', super='closed', settled='first', floor=1,
            journal='header of 1', record=2, refl_name=True, journal_name=True)
SETTLE = [
    sets('replay', refl_slot='new', durable='home'),
    sets('reset_words', word='home'),
] + reopen(1)
# The process dies before the sync of its close.
KILLED = FAST[:2] + [now('is_killed')]
# (steps, items in the beginning, contents in the beginning)
SCENARIOS = {
    'spatial': (OPEN + FIRST_POINT + SPATIAL, START, 'old'),
    'again': (OPEN + FIRST_POINT + AGAIN, START, 'old'),
    'died': (DIED, START, 'old'),
    'unused': (OPEN + FAST + reopen(2)[:5], START, 'old'),
    'fast': (OPEN + FIRST_POINT + SECOND_POINT + FAST + reopen(2), START, 'old'),
    'killed': (OPEN + FIRST_POINT + SECOND_POINT + KILLED + reopen(1), START, 'old'),
    'settle': (SETTLE, TORN, 'newer'),
}

# A step that is left out (None), moved behind another one, or done in another way.
MUTANTS = {
    'sync_refl': None, 'sync_folder': None, 'sync_mark': None, 'sync_header': None, 'sync_record': None,
    'sync_floor': None, 'sync_home': None, 'sync_closed': None, 'sync_found': None, 'sync_next_header': None,
    'sync_begin': None, 'closing': None, 'sync_removal': None, 'sync_record_2': None, 'settle': None,
    'byte_mark': None, 'byte_mark_2': None, 'unset': None,
    'sync_mark_again': None, 'sync_refl_2': None, 'sync_folder_2': None, 'sync_mark_2': None,
    'mark_before_names': ('sync_folder', 'sync_mark'),
    'byte_mark_before_names': ('sync_folder', 'byte_mark'),
    'byte_mark_after_use': ('byte_mark', 'write'),
    'byte_mark_not_synced': ('byte_mark', 'sync_mark'),
    'unmarked_after_sync': ('unset', 'sync_home'),
    'unmarked_before_deployment': ('deploy', 'unset'),
    'settled_before_mark': ('mark', 'settle'),
    'settled_before_sync': ('sync_closed', 'settle_closed'),
    'closed_before_home': ('sync_home', 'sync_closed'),
    'removed_before_sync': ('sync_home', 'remove_refl'),
    'journal_removed_before_sync': ('sync_home', 'remove_journal'),
    'unmarked_before_removal': ('sync_removal', 'unmark'),
    'floor_before_record': ('sync_record', 'sync_floor'),
    'deployed_before_record': ('sync_record', 'sync_home'),
    # Rules of the next opening.
    'settled_not_compared': 'rule', 'closing_not_told': 'rule', 'missing_header_refused': 'rule',
    'missing_header_always_taken': 'rule', 'replayed_to_home': 'rule', 'next_header_without_last': 'rule',
    'byte_mark_not_read': 'rule', 'first_not_gone_back': 'rule', 'unmarked_first_taken': 'rule',
    'earlier_mark_counts': 'rule',
}


def steps_of(scenario, mutant):
    found = SCENARIOS[scenario][0]
    if mutant in MUTANTS and MUTANTS[mutant] is None:
        found = [step for step in found if step[0] != mutant]
    if isinstance(MUTANTS.get(mutant), tuple):
        early, late = MUTANTS[mutant]
        names = [name for name, *_ in found]
        if early in names and late in names:
            found = list(found)
            moved = found.pop(names.index(early))
            found.insert(1 + next(i for i, step in enumerate(found) if step[0] == late), moved)
    changed = []
    for name, kind, what in found:
        if mutant == 'next_header_without_last' and name == 'next_header':
            what = {'journal': 'header of 2 to 3'}
        if mutant == 'replayed_to_home' and name == 'replay':
            what = dict(what, home_slot='newer', home_time=2)
        changed.append((name, kind, what))
    return changed


def content(disk, slot):
    """What a slice holds, by the slot that counts."""
    return disk['home_slot'] if slot == 'home' else disk['refl_slot']


def with_len(disk, found, is_exact):
    """Before the first point the file had its first length. Going back restores it."""
    if disk['home_len'] == 'edited' and not is_exact:
        return 'edited'
    return found + ' and too long' if not is_exact and found == 'old' and disk['home_len'] == 'longer' else found


def plain(disk):
    return with_len(disk, disk['home_slot'], False)


def gone_back(disk, is_closed, mutant):
    """The last durable point by the journal of the first session, or of a later one without a record."""
    if disk['super'] == 'next':
        is_journal = disk['journal_name'] and disk['journal'] in ('header of 1 to 3', 'header of 2 to 3')
        return content(disk, disk['durable']) if is_journal else 'refused: the journal is gone'
    has_header = disk['journal_name'] and disk['journal'] in ('header of 1', 'header of 1 to 3')
    if not has_header:
        is_gone = not disk['journal_name']
        if disk['mark'] == 'closing' and is_gone and mutant != 'closing_not_told':
            return plain(disk)
        is_another = disk['journal_name'] and disk['journal'] == 'header of 2 to 3'
        no_point = disk['floor'] == 0 or mutant == 'missing_header_always_taken'
        if is_another or not no_point or mutant == 'missing_header_refused':
            return 'refused: the journal is gone'
        return disk['home_slot']
    if disk['record'] < disk['floor']:
        return 'refused: the journal is older than the floor'
    if disk['record'] == 2:
        # Replay brings the slice to the home slot. The home file of a closed pair is durable, and stays as it is.
        return disk['home_slot'] if is_closed else 'newer'
    return 'new' if disk['record'] == 1 else disk['home_slot']


def opening(disk, same_boot, mutant):
    """What the next opening finds: `refused`, or what the file holds."""
    mark = disk['mark']
    if not disk['refl_name']:
        if mark in ('in use', 'in use again'):
            return 'refused: the reflection file is gone'
        return 'refused: a lone copy' if disk['byte_mark'] and mutant != 'byte_mark_not_read' else plain(disk)
    if not disk['refl_made'] or disk['super'] in (None, 'torn'):
        # A file without a mark has no pair, whatever lies at the name of its companion.
        return plain(disk) if mark is None else 'refused: damaged'
    said = disk['super']
    if said == 'again' and mark in ('in use', 'closing'):
        # A mark of the first pair. A closing one is none to a later pair.
        if mark == 'in use' or mutant == 'earlier_mark_counts':
            return 'refused: another pair'
        mark = None
    if mark is None:
        was_settled = disk['settled'] is not None or disk['floor'] > 0
        if said in ('first', 'again') and not was_settled:
            return gone_back(disk, False, mutant) if mutant == 'unmarked_first_taken' else plain(disk)
        return 'refused: the mark is gone'
    if said == 'closed':
        if disk['home_time'] != (1 if disk['record'] == 2 else 0):
            return 'refused: the home file has changed'
        is_settled = disk['settled'] == 'closed' or mutant == 'settled_not_compared'
        if same_boot or is_settled:
            return content(disk, disk['word'])
        return gone_back(disk, True, mutant)
    if same_boot:
        if mark == 'closing' and not disk['journal_name'] and mutant != 'closing_not_told':
            return plain(disk)
        if not disk['journal_name'] and (disk['floor'] > 0 or said == 'next'):
            return 'refused: the journal is gone'
        return content(disk, disk['word'])
    if said == 'first' and disk['floor'] == 0 and mutant == 'first_not_gone_back':
        return plain(disk)
    return gone_back(disk, False, mutant)


def check_scenario(scenario, mutant):
    _, start, durable = SCENARIOS[scenario]
    kept = {item: [value] for item, value in start.items()}
    may, working, bad, images = {durable}, {durable}, [], 0
    for name, kind, what in steps_of(scenario, mutant):
        if kind == '=':
            for item, value in what.items():
                kept[item].append(value)
            if 'record' in what:
                may = may | {'new' if what['record'] == 1 else 'newer'}
            if name.startswith('write'):
                slot = 'refl_slot' if 'refl_slot' in what else 'home_slot'
                working = working | {what[slot]}
            if 'super' in what and len(kept['super']) > 2:
                # Both copies are being written.
                kept['super'].insert(-1, 'torn')
            for slot in ('home_slot', 'refl_slot'):
                # A write, a deployment or a replay may be torn. A replay to the home slot repeats older records.
                if slot in what:
                    kept[slot].insert(-1, 'torn')
        elif kind == 'new':
            for item in sum((FILES[file] for file in what), []):
                kept[item] = [START[item]]
        elif kind == 'sync':
            for item in FILES[what]:
                kept[item] = [kept[item][-1]]
        else:
            may = {what['durable']} if 'durable' in what else may
            working = {what['working']} if 'working' in what else working
        is_removed = kind == 'now' and what.get('is_removed')
        newest = {item: values[-1] for item, values in kept.items()}
        # The closed superblock of `settle` was written in an earlier boot.
        found = opening(newest, scenario != 'settle' or newest['super'] == 'next', mutant)
        images += 1
        if found not in working:
            bad.append((scenario, name, 'process', found))
        alone = {'refl_name': False, 'journal_name': False, 'mark': None}
        lone = opening(dict(newest, **alone), True, mutant)
        if not lone.startswith('refused') and lone not in working:
            bad.append((scenario, name, 'copied', lone))
        if name in ('opened', 'written') and newest['mark'] is not None:
            # A tool takes the mark off, and the process dies.
            if not opening(dict(newest, mark=None), True, mutant).startswith('refused'):
                bad.append((scenario, name, 'process', 'nothing tells that the mark is gone'))
        if kind == 'now' and 'durable' in what:
            # The journal loses its bytes, and the machine is restarted.
            if not opening(dict(newest, journal='zeroes'), False, mutant).startswith('refused'):
                bad.append((scenario, name, 'power', 'nothing tells that the journal is gone'))
        items = list(kept)
        for values in itertools.product(*(dict.fromkeys(kept[item]) for item in items)):
            disk = dict(zip(items, values))
            images += 1
            found = opening(disk, False, mutant)
            begins = name == 'opened' and disk['home_len'] == 'short'
            leftover = is_removed and (disk['refl_name'] or disk['journal_name'])
            # From the floor on, an older journal is told, and so is one without a header.
            floor_is_due = kind == 'now' and 'durable' in what and disk['floor'] == 0
            if found not in may or leftover or begins or floor_is_due:
                bad.append((scenario, name, 'power', found))
            # Until the sync of a spatial close, its power loss may leave a copy that nothing tells.
            is_unmarking = not newest['byte_mark'] and True in kept['byte_mark']
            lone = opening(dict(disk, **alone), False, mutant)
            if not is_unmarking and not lone.startswith('refused') and lone not in may:
                bad.append((scenario, name, 'copied', lone))
            if disk['mark'] is None and not is_removed and disk['super'] == 'first':
                # A file that never had a pair is edited, and opened again.
                found = opening(dict(disk, home_len='edited'), False, mutant)
                if found != 'edited':
                    bad.append((scenario, name, 'power', 'an edited file is cut: ' + found))
    return images, bad


def check(mutant):
    images, bad = 0, []
    for scenario in SCENARIOS:
        more, found = check_scenario(scenario, mutant)
        images += more
        bad += found
    return images, bad


def run(mutant):
    images, bad = check(mutant)
    first = f', first in {bad[0][0]} after {bad[0][1]} ({bad[0][2]}): {bad[0][3]}' if bad else ''
    print(f'{mutant}: {images} images, {len(bad)} violations{first}')
    return bool(bad)


if __name__ == '__main__':
    if sys.argv[1:2] == ['--all']:
        wrong = run('none')
        for mutant in MUTANTS:
            found = run(mutant)
            wrong |= not found
            if not found:
                print(f'  NOT FOUND: {mutant}')
        sys.exit(wrong)
    mutant = sys.argv[1] if len(sys.argv) > 1 else 'none'
    sys.exit(run(mutant) != (mutant != 'none'))
