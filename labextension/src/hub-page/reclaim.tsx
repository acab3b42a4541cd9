/** Taking GPUs back from chosen users: their limits are lowered, with a grace. */
import React, { useState } from 'react';
import { ISubjectRow } from '../hub-api/limits';
import { usePage } from '../hub-common/context';
import { Dialog } from '../hub-common/dialog';
import { Field } from '../hub-common/field';
import { Buttons } from '../hub-common/questions';
import { ISaving } from '../hub-common/saving';
import { readTyped } from '../hub-model/amount';
import { reclaimed } from '../hub-model/reclaim';
import { gpus } from '../words/sentence';

/** Properties of the dialog. */
export interface IReclaimProps {
  readonly rows: readonly ISubjectRow[];
  readonly saving: ISaving;
  readonly onClose: () => void;
}

/** How much each may keep, and when the rest goes; who loses what is asked next, before anything is saved. */
export function Reclaim({ rows, saving, onClose }: IReclaimProps): React.JSX.Element {
  const { trans } = usePage();
  const [left, setLeft] = useState('0');
  const [grace, setGrace] = useState('10m');
  const [error, setError] = useState('');
  const used = rows.reduce((sum, row) => sum + (row.used ?? 0), 0);

  function save(): void {
    const read = readTyped(left, trans, false);
    if ('error' in read || read.value === null) {
      setError(trans.__('Type a number of GPUs such as 0 or 0.5.'));
      return;
    }
    onClose();
    void saving.propose(reclaimed(rows, read.value, grace, trans), { ask: true });
  }

  return (
    <Dialog title={trans.__('Take GPUs back')} onClose={onClose}>
      <p>
        {trans.__('The chosen users have %1 now. Their limits are lowered;', gpus(used, trans))}{' '}
        {trans.__(
          'undo that, or raise their limits again, to let them have more. Their programs are not ended.'
        )}
      </p>
      <Field label={trans.__('GPUs that each may keep')} error={error} className="mb-2">
        {control => (
          <input
            {...control}
            className="form-control"
            value={left}
            maxLength={32}
            autoComplete="off"
            onChange={event => {
              setLeft(event.target.value);
              setError('');
            }}
          />
        )}
      </Field>
      <Field label={trans.__('Taken back')}>
        {control => (
          <select
            {...control}
            className="form-select"
            value={grace}
            onChange={event => setGrace(event.target.value)}
          >
            <option value="0s">{trans.__('at once')}</option>
            <option value="1m">{trans.__('in 1 minute')}</option>
            <option value="10m">{trans.__('in 10 minutes')}</option>
            <option value="1h">{trans.__('in 1 hour')}</option>
          </select>
        )}
      </Field>
      <Buttons
        yes={trans.__('Preview')}
        no={trans.__('Cancel')}
        onYes={save}
        onNo={onClose}
        disabled={saving.busy}
      />
    </Dialog>
  );
}
