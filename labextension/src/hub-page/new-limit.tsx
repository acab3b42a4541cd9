/** The first step to a new limit: whom it is about. */
import React, { useState } from 'react';
import { ISubject, Kind } from '../hub-api/limits';
import { usePage } from '../hub-common/context';
import { Dialog } from '../hub-common/dialog';
import { Field } from '../hub-common/field';
import { Buttons } from '../hub-common/questions';
import { kindHelp, kindName, kinds, readSubjectName } from '../hub-model/subject';

/** Properties of the dialog. */
export interface INewLimitProps {
  /** Name of the hub. */
  readonly hub: string;
  readonly onChoose: (subject: ISubject) => void;
  readonly onClose: () => void;
}

/** A kind, a name and a hub; the limit that there may be already is opened next. */
export function NewLimit({ hub, onChoose, onClose }: INewLimitProps): React.JSX.Element {
  const { trans, machine } = usePage();
  const [kind, setKind] = useState<Kind>('User');
  const [typed, setTyped] = useState('');
  const [here, setHere] = useState(true);
  const [error, setError] = useState('');
  const named = kind !== 'Default' && kind !== 'Cap';
  const ofHub = kind === 'User' || kind === 'Group';

  function next(event?: React.FormEvent): void {
    event?.preventDefault();
    const read = named ? readSubjectName(kind, typed, trans) : { value: '' };
    if ('error' in read) {
      setError(read.error);
    } else {
      onChoose({ kind, name: read.value, hub: ofHub && here ? hub : '' });
    }
  }
  return (
    <Dialog title={trans.__('New limit')} onClose={onClose}>
      <form onSubmit={next}>
        <Field label={trans.__('Limit for')} help={kindHelp(kind, trans, machine)} className="mb-2">
          {control => (
            <select
              {...control}
              className="form-select"
              value={kind}
              onChange={event => {
                setKind(event.target.value as Kind);
                setError('');
              }}
            >
              {kinds(machine).map(one => (
                <option key={one} value={one}>
                  {kindName(one, trans)}
                </option>
              ))}
            </select>
          )}
        </Field>
        {named && (
          <Field label={trans.__('Name')} error={error} className="mb-2">
            {control => (
              <input
                {...control}
                className="form-control"
                value={typed}
                maxLength={255}
                autoComplete="off"
                spellCheck={false}
                onChange={event => {
                  setTyped(event.target.value);
                  setError('');
                }}
              />
            )}
          </Field>
        )}
        {ofHub && !machine && (
          <Field label={trans.__('In which hubs')}>
            {control => (
              <select
                {...control}
                className="form-select"
                value={here ? 'here' : 'every'}
                onChange={event => setHere(event.target.value === 'here')}
              >
                <option value="here">{trans.__('this hub (%1)', hub)}</option>
                <option value="every">{trans.__('every hub of the cluster')}</option>
              </select>
            )}
          </Field>
        )}
        <Buttons yes={trans.__('Next')} no={trans.__('Cancel')} onYes={next} onNo={onClose} />
      </form>
    </Dialog>
  );
}
