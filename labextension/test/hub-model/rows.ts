/** Rows of the table in a line each, for tests. */
import { IOwn, ISubject, ISubjectRow } from '../../src/hub-api/limits';

export const ANN: ISubject = { kind: 'User', name: 'ann', hub: 'jhub' };

/** The limit about a subject. */
export function own(fields: Record<string, unknown>, more: Partial<IOwn> = {}): IOwn {
  return { version: '7', fields, managedBy: null, mirrored: false, ...more };
}

/** A row. */
export function row(more: Partial<ISubjectRow> = {}): ISubjectRow {
  return {
    subject: ANN,
    known: true,
    limit: null,
    guaranteed: null,
    used: 0,
    waiting: 0,
    idle: 0,
    members: null,
    own: null,
    notes: [],
    inForce: null,
    until: null,
    giveBackAt: null,
    changed: null,
    ...more
  };
}
