/** A cell with an amount that is changed in place: Enter saves, Esc leaves it as it was. */
import React, { useEffect, useId, useRef, useState } from 'react';
import { ISourced, ISubjectRow } from '../hub-api/limits';
import { usePage } from '../hub-common/context';
import { amount, readTyped, typedOf } from '../hub-model/amount';
import { subjectName } from '../hub-model/subject';
import { describeSource } from '../words/limit';

/** Properties of such a cell. */
export interface IAmountCellProps {
  readonly row: ISubjectRow;
  readonly field: 'max' | 'guaranteed';
  readonly shown: ISourced | null;
  readonly mayEdit: boolean;
  /** `row`: as it was when the edit began, so that somebody else's change meanwhile is noticed. */
  readonly onSave: (row: ISubjectRow, value: string | null) => void;
}

/** The amount with its source, and a button that opens the field. */
export function AmountCell(props: IAmountCellProps): React.JSX.Element {
  const { trans } = usePage();
  const [editing, setEditing] = useState<ISubjectRow | null>(null);
  const button = useRef<HTMLButtonElement>(null);
  const left = useRef(false);
  const { row, field, shown } = props;
  const text = shown ? amount(shown.value, trans) : trans.__('not set');
  // That nothing is guaranteed where nothing is set needs no words.
  const told = field === 'max' || shown?.source.kind !== 'Unset';
  const source = shown && told && describeSource(shown.source, trans, false);

  useEffect(() => {
    if (!editing && left.current) {
      left.current = false;
      button.current?.focus();
    }
  }, [editing]);
  function close(): void {
    left.current = true;
    setEditing(null);
  }

  if (editing) {
    return (
      <AmountField
        row={editing}
        field={field}
        onCancel={close}
        onSave={value => {
          close();
          props.onSave(editing, value);
        }}
      />
    );
  }
  const subject = subjectName(row.subject, trans);
  return (
    <>
      {props.mayEdit ? (
        <button
          ref={button}
          type="button"
          className="btn btn-link p-0 align-baseline"
          aria-label={
            field === 'max'
              ? trans.__('Change the limit of %1, now %2', subject, text)
              : trans.__('Change what is guaranteed to %1, now %2', subject, text)
          }
          onClick={() => setEditing(row)}
        >
          {text}
        </button>
      ) : (
        text
      )}
      {source && <div className="gpu-Source">{source}</div>}
    </>
  );
}

function AmountField(props: {
  readonly row: ISubjectRow;
  readonly field: 'max' | 'guaranteed';
  readonly onSave: (value: string | null) => void;
  readonly onCancel: () => void;
}): React.JSX.Element {
  const { trans } = usePage();
  const { row, field } = props;
  const own = row.own && !row.own.mirrored ? row.own.fields[field] : null;
  const [typed, setTyped] = useState(typedOf(own));
  const [error, setError] = useState('');
  const input = useRef<HTMLInputElement>(null);
  const id = useId();
  useEffect(() => input.current?.select(), []);

  function save(event: React.FormEvent): void {
    event.preventDefault();
    const read = readTyped(typed, trans, field === 'max');
    if ('error' in read) {
      setError(read.error);
    } else {
      props.onSave(read.value);
    }
  }

  const subject = subjectName(row.subject, trans);
  return (
    <form className="gpu-Edit" onSubmit={save}>
      <input
        ref={input}
        className="form-control form-control-sm"
        value={typed}
        maxLength={32}
        autoComplete="off"
        spellCheck={false}
        placeholder={trans.__('inherit')}
        aria-label={
          field === 'max' ? trans.__('Limit of %1', subject) : trans.__('Guaranteed to %1', subject)
        }
        aria-invalid={Boolean(error)}
        aria-describedby={id}
        onChange={event => {
          setTyped(event.target.value);
          setError('');
        }}
        onKeyDown={event => {
          if (event.key === 'Escape') {
            event.stopPropagation();
            props.onCancel();
          }
        }}
      />
      <div
        id={id}
        className={error ? 'gpu-Source text-danger-emphasis' : 'gpu-Source'}
        role="status"
      >
        {error || trans.__('Enter saves, Esc leaves it as it was.')}
      </div>
    </form>
  );
}
