/** One row of the table. */
import type { TranslationBundle } from '@jupyterlab/translation';
import React from 'react';
import { IChanged, ISubject, ISubjectRow } from '../hub-api/limits';
import { usePage } from '../hub-common/context';
import { amount } from '../hub-model/amount';
import { kindName, lockOf, subjectName } from '../hub-model/subject';
import { describeSource, locale } from '../words/limit';
import { gpus } from '../words/sentence';
import { AmountCell } from './amount-cell';

/** Properties of a row. */
export interface IRowProps {
  readonly row: ISubjectRow;
  readonly mayEdit: boolean;
  readonly chosen: boolean;
  readonly onChoose: (row: ISubjectRow, chosen: boolean) => void;
  /** The name of a user: why is the limit what it is? */
  readonly onExplain: (user: string) => void;
  /** Show all fields of the limit. */
  readonly onOpen: (subject: ISubject) => void;
  readonly onSave: (row: ISubjectRow, field: 'max' | 'guaranteed', value: string | null) => void;
}

/** A subject with its limit and use. */
export function Row(props: IRowProps): React.JSX.Element {
  const { trans, machine } = usePage();
  const { row } = props;
  const lock = lockOf(row, trans, machine);
  const mayEdit = props.mayEdit && !lock;
  const name = subjectName(row.subject, trans);
  return (
    <tr>
      {props.mayEdit && (
        <td>
          <input
            type="checkbox"
            className="form-check-input"
            aria-label={trans.__('Choose %1', name)}
            checked={props.chosen}
            disabled={Boolean(lock)}
            onChange={event => props.onChoose(row, event.target.checked)}
          />
        </td>
      )}
      <td className="gpu-Number">{kindName(row.subject.kind, trans)}</td>
      <th scope="row">
        <Name row={row} onOpen={() => props.onOpen(row.subject)} />
        {lock && <Lock reason={lock} />}
        {row.notes.map(note => (
          <div key={note} className="gpu-Source text-danger-emphasis">
            {note}
          </div>
        ))}
      </th>
      <td>
        <AmountCell
          row={row}
          field="max"
          shown={row.limit}
          mayEdit={mayEdit}
          onSave={(of, value) => props.onSave(of, 'max', value)}
        />
        <InForce row={row} />
        {row.subject.kind === 'User' && (
          <button
            type="button"
            className="btn btn-sm btn-link p-0"
            aria-label={trans.__('Why has %1 this limit?', name)}
            onClick={() => props.onExplain(row.subject.name)}
          >
            {trans.__('Why?')}
          </button>
        )}
      </td>
      <td className="gpu-Number">{count(row.used, trans)}</td>
      <td className="gpu-Number">{count(row.waiting, trans)}</td>
      <td>
        <AmountCell
          row={row}
          field="guaranteed"
          shown={row.guaranteed}
          mayEdit={mayEdit}
          onSave={(of, value) => props.onSave(of, 'guaranteed', value)}
        />
      </td>
      <td className="gpu-Number">{count(row.idle, trans)}</td>
      <td>
        <When changed={row.changed} />
      </td>
    </tr>
  );
}

function Name(props: {
  readonly row: ISubjectRow;
  readonly onOpen: () => void;
}): React.JSX.Element {
  const { trans } = usePage();
  const { row, onOpen } = props;
  const { subject, members } = row;
  const spoken = subjectName(subject, trans);
  const unknown = !row.known && (subject.kind === 'User' || subject.kind === 'Group');
  return (
    <>
      <button
        type="button"
        className="btn btn-link p-0 fw-bold gpu-Name"
        aria-haspopup="dialog"
        aria-label={
          subject.name
            ? trans.__('Limit of %1', spoken)
            : trans.__('Limit of %1, for everyone', spoken)
        }
        onClick={onOpen}
      >
        {subject.name || trans.__('everyone')}
      </button>
      {members !== null && (
        <div className="gpu-Source">
          {members === 1 ? trans.__('1 member') : trans.__('%1 members', members)}
        </div>
      )}
      {unknown && (
        <div className="gpu-Source">
          {subject.kind === 'User'
            ? trans.__('the hub knows no such user')
            : trans.__('the hub knows no such group')}
        </div>
      )}
    </>
  );
}

function Lock({ reason }: { readonly reason: string }): React.JSX.Element {
  return (
    <div className="gpu-Source">
      <i className="fa fa-lock" aria-hidden="true" />
      {` ${reason}`}
    </div>
  );
}

/** The value in force, where hours or a budget lower it. */
function InForce({ row }: { readonly row: ISubjectRow }): React.JSX.Element | null {
  const { trans } = usePage();
  const { inForce, limit, giveBackAt } = row;
  const lowered = inForce && inForce.value !== limit?.value;
  return lowered || giveBackAt ? (
    <div className="gpu-Source">
      {lowered &&
        trans.__(
          'now %1, %2',
          amount(inForce.value, trans),
          describeSource(inForce.source, trans, false)
        )}
      {giveBackAt &&
        ` ${trans.__('What is above it is taken back at %1.', time(giveBackAt, trans))}`}
    </div>
  ) : null;
}

function When({ changed }: { readonly changed: IChanged | null }): React.JSX.Element | null {
  const { trans } = usePage();
  return (
    changed && (
      <>
        <time dateTime={changed.at}>{time(changed.at, trans)}</time>
        <div className="gpu-Source">{changed.by}</div>
      </>
    )
  );
}

/** `"3 May 2026, 10:00"` on the reader's clock; text that is no time as it is. */
export function time(at: string, trans: TranslationBundle): string {
  const date = new Date(at);
  return Number.isNaN(date.getTime())
    ? at
    : date.toLocaleString(locale(trans), { dateStyle: 'medium', timeStyle: 'short' });
}

function count(milli: number | null, trans: TranslationBundle): string {
  return milli === null ? '–' : gpus(milli, trans);
}
