/** Saving: a dry run first, a question where somebody would lose GPUs, conflicts, and a list of what can be undone. */
import { useCallback, useRef, useState } from 'react';
import { bulk, IEdit, IPreview } from '../hub-api/edits';
import { again, conflicts, IConflict, inverse, summary } from '../hub-model/edits';
import { usePage } from './context';
import { explainError } from './messages';

/** Changes that wait for a yes. */
export interface IQuestion {
  readonly edits: readonly IEdit[];
  readonly preview: IPreview;
}

/** How something is saved. */
export interface IHow {
  /** Ask in any case. */
  readonly ask?: boolean;
  /** Called at the end: all was written, or the value of others was kept. */
  readonly done?: () => void;
}

/** The state of saving, and the actions that are possible. */
export interface ISaving {
  readonly busy: boolean;
  /** The last event, in words. */
  readonly message: string;
  readonly failed: boolean;
  readonly question: IQuestion | null;
  readonly conflicts: readonly IConflict[];
  /** Number of changes that can be undone. */
  readonly undoable: number;
  /** Save, after a question where somebody would lose GPUs. */
  propose(edits: readonly IEdit[], how?: IHow): Promise<void>;
  /** Answer the question. */
  answer(yes: boolean): Promise<void>;
  /** Settle the first conflict: write mine, or keep theirs. */
  settle(mine: boolean): Promise<void>;
  undo(): Promise<void>;
}

/** Most changes that can be undone. */
const MOST = 50;

/** The state of saving of one page. */
export function useSaving(): ISaving {
  const { api, trans } = usePage();
  const [busy, setBusy] = useState(false);
  const [message, setMessage] = useState({ text: '', failed: false });
  const [question, setQuestion] = useState<IQuestion | null>(null);
  const [open, setOpen] = useState<readonly IConflict[]>([]);
  const [undoable, setUndoable] = useState(0);
  const done = useRef<(readonly IEdit[])[]>([]);
  const finish = useRef<() => void>();

  const run = useCallback(
    async (step: () => Promise<void>) => {
      setBusy(true);
      try {
        await step();
      } catch (error) {
        setMessage({ text: explainError(error as Error, trans), failed: true });
      } finally {
        setBusy(false);
      }
    },
    [trans]
  );

  async function save(edits: readonly IEdit[], undoing = false): Promise<void> {
    const { results } = await bulk(api, edits, false);
    const back = inverse(results);
    if (undoing) {
      done.current = done.current.slice(0, -1);
    } else if (back.length) {
      done.current = [...done.current, back].slice(-MOST);
    }
    setUndoable(done.current.length);
    setOpen(conflicts(edits, results));
    const failed = results.some(({ result }) => result === 'refused');
    setMessage({ text: summary(results, trans), failed });
    if (!failed) {
      finish.current?.();
    }
  }

  async function propose(edits: readonly IEdit[], how: IHow = {}): Promise<void> {
    finish.current = how.done;
    if (!edits.length) {
      setMessage({ text: trans.__('Nothing was changed.'), failed: false });
      how.done?.();
      return;
    }
    await run(async () => {
      const { results, preview } = await bulk(api, edits, true);
      const late = conflicts(edits, results);
      if (late.length) {
        setOpen(late);
        setMessage({ text: late[0].message, failed: true });
      } else if (preview && (how.ask || preview.losers.length)) {
        setQuestion({ edits, preview });
      } else {
        await save(edits);
      }
    });
  }

  return {
    busy,
    message: message.text,
    failed: message.failed,
    question,
    conflicts: open,
    undoable,
    propose,
    answer: async yes => {
      const asked = question;
      setQuestion(null);
      if (yes && asked) {
        await run(() => save(asked.edits));
      } else {
        setMessage({ text: trans.__('Nothing was changed.'), failed: false });
      }
    },
    settle: async mine => {
      const [first, ...others] = open;
      setOpen(others);
      const edit = mine ? again(first) : null;
      if (edit) {
        await propose([edit], { done: finish.current });
      } else {
        setMessage({ text: trans.__('Their value was kept.'), failed: false });
        finish.current?.();
      }
    },
    undo: async () => {
      const last = done.current.at(-1);
      if (last) {
        finish.current = undefined;
        await run(() => save(last, true));
      }
    }
  };
}
