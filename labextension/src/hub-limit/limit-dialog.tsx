/** The dialog with the limit of one subject. */
import React, { useCallback, useRef, useState } from 'react';
import { FieldError } from '../api/check';
import { versionOf } from '../hub-api/changes';
import { ISubject } from '../hub-api/limits';
import {
  ILimitFields,
  ISubjectDetails,
  readLimitFields,
  readSubjectDetails,
  subjectAddress
} from '../hub-api/subject';
import { usePage } from '../hub-common/context';
import { Dialog } from '../hub-common/dialog';
import { Problem } from '../hub-common/messages';
import { Buttons } from '../hub-common/questions';
import { useResource } from '../hub-common/resource';
import { ISaving } from '../hub-common/saving';
import { subjectName } from '../hub-model/subject';
import { LimitForm } from './limit-form';

/** Properties of the dialog. */
export interface ILimitDialogProps {
  readonly subject: ISubject;
  readonly mayEdit: boolean;
  readonly saving: ISaving;
  readonly onClose: () => void;
}

/** All fields of the limit; what was changed and not saved is not lost by Esc. */
export function LimitDialog(props: ILimitDialogProps): React.JSX.Element {
  const { api, trans, counts } = usePage();
  const { subject, mayEdit, saving, onClose } = props;
  const [leaving, setLeaving] = useState(false);
  const dirty = useRef(false);
  const tell = useCallback((is: boolean) => void (dirty.current = is), []);
  const version = versionOf(counts, 'limits');
  const { value, error } = useResource(api, subjectAddress(subject), readSubjectDetails, version);
  const fields = value && fieldsOf(value);
  const name = subjectName(subject, trans);
  const leave = () => (dirty.current ? setLeaving(true) : onClose());
  return (
    <>
      <Dialog title={trans.__('Limit of %1', name)} wide onClose={leave}>
        {error && <Problem error={error} trans={trans} />}
        {value && fields ? (
          <LimitForm
            details={value}
            before={fields}
            mayEdit={mayEdit}
            saving={saving}
            onLeave={leave}
            onSaved={onClose}
            onDirty={tell}
          />
        ) : (
          <p role="status">
            {value
              ? trans.__('This page cannot read all fields of this limit. Change it with kubectl.')
              : trans.__('Loading…')}
          </p>
        )}
      </Dialog>
      {leaving && (
        <Dialog title={trans.__('Leave without saving?')} onClose={() => setLeaving(false)}>
          <p>{trans.__('What you changed in this limit is not saved.')}</p>
          <Buttons
            yes={trans.__('Leave')}
            no={trans.__('Stay')}
            onYes={onClose}
            onNo={() => setLeaving(false)}
          />
        </Dialog>
      )}
    </>
  );
}

/** The fields of the limit with their types; `null`: another service writes what this page does not know. */
function fieldsOf({ own }: ISubjectDetails): ILimitFields | null {
  try {
    return readLimitFields(own?.fields ?? {}, '');
  } catch (error) {
    if (error instanceof FieldError) {
      return null;
    }
    throw error;
  }
}
