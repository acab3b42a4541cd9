/** A dialog of the browser: it keeps the focus inside, and Esc closes it. */
import React, { useEffect, useId, useRef } from 'react';

/** Properties of a dialog. */
export interface IDialogProps {
  readonly title: string;
  readonly onClose: () => void;
  readonly children: React.ReactNode;
}

/** Open as long as it is rendered; the focus returns to where it was. */
export function Dialog({ title, onClose, children }: IDialogProps): React.JSX.Element {
  const box = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const before = document.activeElement;
    const dialog = box.current!;
    dialog.showModal();
    return () => {
      dialog.close();
      if (before instanceof HTMLElement && before.isConnected) {
        before.focus();
      }
    };
  }, []);
  return (
    <dialog
      ref={box}
      className="gpu-Dialog"
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
