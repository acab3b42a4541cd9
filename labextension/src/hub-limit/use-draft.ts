/** The state of a limit that is edited: the draft, what is wrong with it, and the edit that it is. */
import { useMemo, useState } from 'react';
import { IEdit } from '../hub-api/edits';
import { Fields } from '../hub-api/limits';
import { ILimitFields, ISubjectDetails } from '../hub-api/subject';
import { usePage } from '../hub-common/context';
import { changed, draftOf, Errors, fieldsOf, IDraft } from '../hub-model/draft';
import { editOf } from '../hub-model/edits';

/** The draft, and how it changes. */
export interface IDraftState {
  readonly draft: IDraft;
  /** The fields that it says. */
  readonly fields: Fields;
  readonly errors: Errors;
  /** The edit; `null`: nothing differs, or something is wrong. */
  readonly edit: IEdit | null;
  /** Whether something differs from what was there. */
  readonly dirty: boolean;
  readonly set: (part: Partial<IDraft>) => void;
}

/** The draft of a limit whose fields are `before`, for the version that was seen. */
export function useDraft(seen: ISubjectDetails, before: ILimitFields): IDraftState {
  const { trans } = usePage();
  const [draft, setDraft] = useState(() => draftOf(before));
  const state = useMemo(() => {
    const { fields, errors } = fieldsOf(draft, trans);
    const differing = changed(before, fields);
    const wrong = Object.keys(errors).length > 0;
    return {
      fields,
      errors,
      edit: wrong ? null : editOf(seen, differing),
      dirty: wrong || Object.keys(differing).length > 0
    };
  }, [draft, seen, before, trans]);
  return { ...state, draft, set: part => setDraft(old => ({ ...old, ...part })) };
}
