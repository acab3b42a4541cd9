/** A dry run of an edit while it is made: who would lose GPUs, or why it would be refused. */
import { useEffect, useState } from 'react';
import { bulk, IEdit, IPreview, IRefused } from '../hub-api/edits';
import { usePage } from '../hub-common/context';
import { explainError } from '../hub-common/messages';

/** The answer to the dry run of the newest edit. */
export interface IDryRun {
  readonly preview: IPreview | null;
  readonly refused: IRefused | null;
  /** Why there is no answer; empty: there is one, or it is under way. */
  readonly problem: string;
}

/** Milliseconds without a change after which the service is asked. */
const PAUSE = 400;
const NOTHING: IDryRun = { preview: null, refused: null, problem: '' };

/** Ask for the effects of `edit`; `null`: there is none to ask for. */
export function usePreview(edit: IEdit | null): IDryRun {
  const { api, trans } = usePage();
  const [answer, setAnswer] = useState({ key: '', told: NOTHING });
  const key = JSON.stringify(edit);
  useEffect(() => {
    if (!edit) {
      return;
    }
    let over = false;
    const tell = (told: IDryRun) => {
      if (!over) {
        setAnswer({ key, told });
      }
    };
    const timer = setTimeout(() => {
      bulk(api, [edit], true).then(
        ({ preview, results }) =>
          tell({ preview, refused: results.at(0)?.error ?? null, problem: '' }),
        (error: unknown) => tell({ ...NOTHING, problem: explainError(error as Error, trans) })
      );
    }, PAUSE);
    return () => {
      over = true;
      clearTimeout(timer);
    };
    // The text says all that the edit does.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [api, trans, key]);
  return edit && answer.key === key ? answer.told : NOTHING;
}
