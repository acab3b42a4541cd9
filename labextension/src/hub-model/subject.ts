/** Subjects of limits: their names for people, their keys, and which rows may be edited. Pure. */
import type { TranslationBundle } from '@jupyterlab/translation';
import { ISubject, ISubjectRow, Kind } from '../hub-api/limits';

/** A key that differs for each subject. */
export function keyOf({ kind, name, hub }: ISubject): string {
  return JSON.stringify([kind, name, hub]);
}

/** `"User"`, `"Group"`. */
export function kindName(kind: Kind, trans: TranslationBundle): string {
  switch (kind) {
    case 'User':
      return trans.__('User');
    case 'Group':
      return trans.__('Group');
    case 'Namespace':
      return trans.__('Namespace');
    case 'Default':
      return trans.__('Default');
    case 'Cap':
      return trans.__('Cap');
  }
}

/** `"user ann"`, `"the default"`, in a sentence. */
export function subjectName({ kind, name }: ISubject, trans: TranslationBundle): string {
  switch (kind) {
    case 'User':
      return trans.__('user %1', name);
    case 'Group':
      return trans.__('group %1', name);
    case 'Namespace':
      return trans.__('namespace %1', name);
    case 'Default':
      return trans.__('the default');
    case 'Cap':
      return trans.__('the cap');
  }
}

/** Why a row cannot be edited here; empty: it can be. */
export function lockOf({ subject, own }: ISubjectRow, trans: TranslationBundle): string {
  if (subject.kind === 'Cap') {
    return trans.__(
      'The cap is for cluster administrators: it is changed with kubectl, or in the chart.'
    );
  }
  return own?.managedBy && !own.mirrored
    ? trans.__(
        '%1 keeps this limit, and would undo a change made here. Change it there.',
        own.managedBy
      )
    : '';
}

/** The version that an edit of the row is for; empty: it has no limit that people write. */
export function versionOf({ own }: ISubjectRow): string {
  return own && !own.mirrored ? (own.version ?? '') : '';
}
