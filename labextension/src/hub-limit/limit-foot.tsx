/** The end of the form of a limit: what would follow, what went wrong, and the buttons. */
import React, { useState } from 'react';
import { ISubjectDetails } from '../hub-api/subject';
import { usePage } from '../hub-common/context';
import { ISaving } from '../hub-common/saving';
import { versionOf } from '../hub-model/subject';
import { IDryRun } from './use-preview';

/** Properties of the end. */
export interface ILimitFootProps {
  readonly details: ISubjectDetails;
  /** The same when the edit began. */
  readonly seen: ISubjectDetails;
  readonly dirty: boolean;
  readonly run: IDryRun;
  readonly mayEdit: boolean;
  readonly saving: ISaving;
  readonly onLeave: () => void;
  readonly onSaved: () => void;
}

/** Sentences and buttons. */
export function LimitFoot(props: ILimitFootProps): React.JSX.Element {
  const { trans } = usePage();
  const { details, seen, dirty, run, mayEdit, saving, onLeave, onSaved } = props;
  const [begun] = useState(saving.message);
  const version = versionOf(seen);
  const late = versionOf(details) !== version;
  const failed = saving.failed && saving.message !== begun ? saving.message : '';
  const told = run.refused?.message ?? (run.problem || run.preview?.sentence || '');
  return (
    <div className="gpu-Foot">
      <div role="status">
        {late && (
          <div>
            {details.changed
              ? trans.__('%1 changed this limit meanwhile.', details.changed.by)
              : trans.__('This limit was removed meanwhile.')}{' '}
            {trans.__('Before anything is saved, both values are shown.')}
          </div>
        )}
        <div className={run.refused ? 'text-danger-emphasis' : ''}>{dirty && told}</div>
        <div className="text-danger-emphasis">{failed}</div>
      </div>
      <div className="d-flex flex-wrap gap-2 justify-content-end">
        {mayEdit && version && (
          <button
            type="button"
            className="btn btn-danger me-auto"
            disabled={saving.busy}
            onClick={() =>
              void saving.propose([{ subject: seen.subject, set: null, version }], {
                ask: true,
                done: onSaved
              })
            }
          >
            {trans.__('Remove this limit…')}
          </button>
        )}
        <button type="button" className="btn btn-secondary" onClick={onLeave}>
          {mayEdit ? trans.__('Cancel') : trans.__('Close')}
        </button>
        {mayEdit && (
          <button type="submit" className="btn btn-primary" disabled={saving.busy}>
            {trans.__('Save')}
          </button>
        )}
      </div>
    </div>
  );
}
