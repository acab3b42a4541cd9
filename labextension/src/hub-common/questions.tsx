/** Questions before something is written: who would lose GPUs, and which of two values is meant. */
import React from 'react';
import { Fields } from '../hub-api/limits';
import { amount } from '../hub-model/amount';
import { IConflict } from '../hub-model/edits';
import { fieldLabel, fieldText } from '../hub-model/field';
import { subjectName } from '../hub-model/subject';
import { usePage } from './context';
import { Dialog } from './dialog';
import { Listing } from './listing';
import { IQuestion, ISaving } from './saving';

/** Losers that are named. */
const NAMED = 10;

/** The open question, if there is one. */
export function Questions({ saving }: { readonly saving: ISaving }): React.JSX.Element | null {
  if (saving.question) {
    return <Losses question={saving.question} answer={yes => void saving.answer(yes)} />;
  }
  const conflict = saving.conflicts.at(0);
  return conflict ? (
    <Conflict conflict={conflict} settle={mine => void saving.settle(mine)} />
  ) : null;
}

function Losses(props: {
  readonly question: IQuestion;
  readonly answer: (yes: boolean) => void;
}): React.JSX.Element {
  const { trans } = usePage();
  const { preview } = props.question;
  const others = preview.losers.length - NAMED;
  return (
    <Dialog title={trans.__('Save this change?')} onClose={() => props.answer(false)}>
      <p>{preview.sentence}</p>
      {preview.losers.length > 0 && (
        <ul>
          {preview.losers.slice(0, NAMED).map(({ owner, lost }) => (
            <li key={`${owner.kind} ${owner.name}`}>
              {trans.__('%1 loses %2.', owner.name, amount(lost, trans))}
            </li>
          ))}
          {others > 0 && <li>{trans.__('%1 others lose GPUs, too.', others)}</li>}
        </ul>
      )}
      <Buttons
        yes={trans.__('Save')}
        no={trans.__('Cancel')}
        onYes={() => props.answer(true)}
        onNo={() => props.answer(false)}
      />
    </Dialog>
  );
}

function Conflict(props: {
  readonly conflict: IConflict;
  readonly settle: (mine: boolean) => void;
}): React.JSX.Element {
  const { trans } = usePage();
  const { edit, theirs, message } = props.conflict;
  const names = Object.keys({ ...edit.set, ...(edit.set ? {} : theirs) });
  return (
    <Dialog
      title={trans.__('Two people changed %1', subjectName(edit.subject, trans))}
      onClose={() => props.settle(false)}
    >
      <p>{message}</p>
      <Listing heads={[trans.__('Field'), trans.__('Yours'), trans.__('Theirs')]}>
        {names.map(name => (
          <tr key={name}>
            <th scope="row">{fieldLabel(name, trans)}</th>
            <td>
              <Value fields={edit.set} name={name} />
            </td>
            <td>
              <Value fields={theirs} name={name} />
            </td>
          </tr>
        ))}
      </Listing>
      <Buttons
        yes={trans.__('Write mine')}
        no={trans.__('Keep theirs')}
        onYes={() => props.settle(true)}
        onNo={() => props.settle(false)}
      />
    </Dialog>
  );
}

function Value(props: {
  readonly fields: Fields | null;
  readonly name: string;
}): React.JSX.Element {
  const { trans } = usePage();
  const { fields, name } = props;
  return <>{fields ? fieldText(name, fields[name], trans) : trans.__('no limit')}</>;
}

/** Two buttons at the end of a dialog. */
export function Buttons(props: {
  readonly yes: string;
  readonly no: string;
  readonly onYes: () => void;
  readonly onNo: () => void;
  readonly disabled?: boolean;
}): React.JSX.Element {
  return (
    <div className="d-flex gap-2 justify-content-end mt-3">
      <button type="button" className="btn btn-secondary" onClick={props.onNo}>
        {props.no}
      </button>
      <button
        type="button"
        className="btn btn-primary"
        onClick={props.onYes}
        disabled={props.disabled}
      >
        {props.yes}
      </button>
    </div>
  );
}
