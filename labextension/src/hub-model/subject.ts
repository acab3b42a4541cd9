/** Subjects of limits: their names for people, their keys, and which rows may be edited. Pure. */
import type { TranslationBundle } from '@jupyterlab/translation';
import { ISubject, ISubjectRow, Kind } from '../hub-api/limits';
import { Read } from './values';

/** The part of a row that an edit needs. */
export type IEdited = Pick<ISubjectRow, 'subject' | 'own'>;

/** All kinds, the most frequent first; one machine has no namespaces. */
export function kinds(machine: boolean): readonly Kind[] {
  return machine
    ? ['User', 'Group', 'Default', 'Cap']
    : ['User', 'Group', 'Namespace', 'Default', 'Cap'];
}

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

/** Why a row cannot be edited here, on one machine or in a cluster; empty: it can be. */
export function lockOf(
  { subject, own }: IEdited,
  trans: TranslationBundle,
  machine = false
): string {
  if (subject.kind === 'Cap') {
    return machine
      ? trans.__(
          'The cap is for administrators of the machine: it is changed with %1.',
          'sudo jupyter gpu limits set --machine cap'
        )
      : trans.__(
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
export function versionOf({ own }: IEdited): string {
  return own && !own.mirrored ? (own.version ?? '') : '';
}

/** Whom a limit of a kind is about. */
export function kindHelp(kind: Kind, trans: TranslationBundle, machine = false): string {
  switch (kind) {
    case 'User':
      return trans.__('Comes before what the user’s groups say, field by field.');
    case 'Group':
      return trans.__('Each member by itself has the limit; of several groups the largest counts.');
    case 'Namespace':
      return trans.__('Pods of the namespace that belong to no user, together.');
    case 'Default':
      return machine
        ? trans.__('Users about whom nothing else is said.')
        : trans.__('Users and namespaces about which nothing else is said.');
    case 'Cap':
      return trans.__('Everyone: no other limit gives more.');
  }
}

/** Read the name of a subject, as the hub or the cluster has it. */
export function readSubjectName(kind: Kind, typed: string, trans: TranslationBundle): Read<string> {
  const name = typed.trim();
  if (!name) {
    return { error: trans.__('Type a name.') };
  }
  return kind === 'Namespace' && !/^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$/.test(name)
    ? { error: trans.__('A namespace has at most 63 lower-case letters, digits and -.') }
    : { value: name };
}
