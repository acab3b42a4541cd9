/** A dialog of the browser: it keeps the focus inside, and Esc closes it. */
import React, { useEffect, useId, useRef } from 'react';

/** Properties of a dialog. */
export interface IDialogProps {
  readonly title: string;
  /** Room for a form. */
  readonly wide?: boolean;
  readonly onClose: () => void;
  readonly children: React.ReactNode;
}

/** Open as long as it is rendered; the focus returns to where it was. */
export function Dialog({ title, wide, onClose, children }: IDialogProps): React.JSX.Element {
  const box = useRef<HTMLDialogElement>(null);
  const id = useId();
  const close = useRef(onClose);
  close.current = onClose;
  useEffect(() => {
    const before = document.activeElement;
    const dialog = box.current!;
    // A browser that is not allowed to close a dialog by Esc closes it at the second one, so it learns of none.
    const pressed = (event: KeyboardEvent) => {
      if (event.key === 'Escape') {
        event.preventDefault();
        close.current();
      }
    };
    dialog.addEventListener('keydown', pressed);
    dialog.showModal();
    return () => {
      dialog.removeEventListener('keydown', pressed);
      dialog.close();
      if (before instanceof HTMLElement && before.isConnected) {
        before.focus();
      }
    };
  }, []);
  return (
    <dialog
      ref={box}
      className={wide ? 'gpu-Dialog gpu-Dialog-wide' : 'gpu-Dialog'}
      aria-labelledby={id}
      onCancel={event => {
        event.preventDefault();
        onClose();
      }}
    >
      <h2 id={id} className="h5">
        {title}
      </h2>
      {children}
    </dialog>
  );
}
