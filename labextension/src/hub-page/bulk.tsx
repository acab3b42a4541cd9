/** The actions on all chosen rows together. */
import React, { useState } from 'react';
import { ISubjectRow } from '../hub-api/limits';
import { usePage } from '../hub-common/context';
import { Field } from '../hub-common/field';
import { ISaving } from '../hub-common/saving';
import { readTyped } from '../hub-model/amount';
import { editsOf } from '../hub-model/edits';
import { reclaimable } from '../hub-model/reclaim';
import { Reclaim } from './reclaim';

/** Properties of the bar. */
export interface IBulkProps {
  readonly rows: readonly ISubjectRow[];
  readonly saving: ISaving;
  readonly onClear: () => void;
}

/** A limit and a guarantee for all chosen rows; hidden while none is chosen. */
export function Bulk({ rows, saving, onClear }: IBulkProps): React.JSX.Element | null {
  const { trans } = usePage();
  const [most, setMost] = useState('');
  const [guaranteed, setGuaranteed] = useState('');
  const [error, setError] = useState('');
  const [reclaims, setReclaims] = useState(false);
  if (!rows.length) {
    return null;
  }
  function save(event: React.FormEvent): void {
    event.preventDefault();
    const fields: Record<string, string | null> = {};
    for (const [name, typed] of [
      ['max', most],
      ['guaranteed', guaranteed]
    ]) {
      const read = readTyped(typed, trans, name === 'max');
      if ('error' in read) {
        setError(read.error);
        return;
      }
      if (typed.trim()) {
        fields[name] = read.value;
      }
    }
    setError('');
    void saving.propose(editsOf(rows, fields, trans), { ask: true });
  }
  return (
    <>
      {reclaims && (
        <Reclaim rows={reclaimable(rows)} saving={saving} onClose={() => setReclaims(false)} />
      )}
      <form
        className="card card-body mb-2 gpu-Bulk"
        aria-label={trans.__('Change all chosen')}
        onSubmit={save}
      >
        <div className="d-flex flex-wrap gap-3 align-items-end">
          <strong role="status">{trans.__('%1 chosen', rows.length)}</strong>
          <Amount label={trans.__('Limit')} value={most} onChange={setMost} />
          <Amount label={trans.__('Guaranteed')} value={guaranteed} onChange={setGuaranteed} />
          <button type="submit" className="btn btn-sm btn-primary" disabled={saving.busy}>
            {trans.__('Preview and save')}
          </button>
          <button
            type="button"
            className="btn btn-sm btn-secondary"
            disabled={saving.busy || !reclaimable(rows).length}
            onClick={() => setReclaims(true)}
          >
            {trans.__('Take GPUs back…')}
          </button>
          <button type="button" className="btn btn-sm btn-secondary" onClick={onClear}>
            {trans.__('Choose none')}
          </button>
        </div>
        <div className="gpu-Source" role="status">
          {error ||
            trans.__('Type a number, “unlimited” or “inherit”; an empty field changes nothing.')}
        </div>
      </form>
    </>
  );
}

function Amount(props: {
  readonly label: string;
  readonly value: string;
  readonly onChange: (value: string) => void;
}): React.JSX.Element {
  const { trans } = usePage();
  return (
    <Field label={props.label}>
      {control => (
        <input
          {...control}
          className="form-control form-control-sm"
          value={props.value}
          maxLength={32}
          autoComplete="off"
          placeholder={trans.__('unchanged')}
          onChange={event => props.onChange(event.target.value)}
        />
      )}
    </Field>
  );
}
