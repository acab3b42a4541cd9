/** Shows notices in JupyterLab and, if allowed, on the desktop. Loaded with the first notice. */
import { Notification as Toast } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import { IView } from '../api/view';
import { sentence } from '../words/sentence';
import { claimAlone, patience } from './claim';
import { INotice, Kind } from './notices';
import { IVisibility, isWorthShowing } from './visibility';

/** Options of {@link notify}. */
export interface INotifyOptions {
  readonly trans: TranslationBundle;
  /** Address of the tab's server: two servers can have notices with the same id. */
  readonly place: string;
  /** Whether to show it on the desktop, too. */
  readonly desktop: boolean;
  readonly visibility: IVisibility;
  /** Milliseconds since this tab was visible. */
  readonly unseen: number;
  /** Show the panel. */
  readonly open: () => void;
}

const TYPES: Record<Kind, Toast.TypeOptions> = {
  came: 'success',
  partly: 'info',
  cannot: 'warning',
  lost: 'error',
  lowered: 'warning'
};

/** Show `notice`, unless another tab did or the user sees the change anyway; that silences the other tabs, too. */
export async function notify(notice: INotice, view: IView, options: INotifyOptions): Promise<void> {
  const { visibility, unseen, place, trans, open } = options;
  const pause = patience(document.hasFocus(), visibility.hidden, unseen);
  if (pause) {
    await new Promise(done => setTimeout(done, pause));
  }
  if (!(await claimAlone(`${place} ${notice.id}`)) || !isWorthShowing(notice, visibility)) {
    return;
  }
  const text = words(notice.kind, sentence(view, trans), trans);
  const asks = options.desktop && permission() === 'default';
  Toast.emit(text, TYPES[notice.kind], {
    // A notice in a hidden tab stays until the tab is visible.
    autoClose: isLasting(notice.kind) || visibility.hidden ? false : 15_000,
    actions: [
      {
        label: trans.__('Open GPUs'),
        caption: trans.__('Show the panel with the GPUs of this server'),
        callback: open
      },
      ...(asks
        ? [
            {
              label: trans.__('Allow on the desktop'),
              caption: trans.__('Let the browser ask whether it may show such messages'),
              callback: () => void ask()
            }
          ]
        : [])
    ]
  });
  if (options.desktop && visibility.hidden && permission() === 'granted') {
    show(text, notice.id, open);
  }
}

/** Whether it stays until the user closes it: GPUs are gone, or will be. */
const isLasting = (kind: Kind) => kind === 'lost' || kind === 'lowered';

/** The text of the notice, which JupyterLab cuts after 140 characters. */
export function words(kind: Kind, now: string, trans: TranslationBundle): string {
  switch (kind) {
    case 'came':
      return trans.__('The GPUs that you waited for are here: %1', now);
    case 'partly':
      return trans.__('Some of the GPUs that you wait for are here: %1', now);
    case 'cannot':
      return trans.__('The GPUs that you waited for cannot come: %1', now);
    case 'lost':
    case 'lowered':
      return now[0].toUpperCase() + now.slice(1);
  }
}

/** Whether the browser may show messages on the desktop; `null` if it cannot. */
export function permission(): NotificationPermission | null {
  return typeof Notification === 'function' ? Notification.permission : null;
}

/** Have the browser ask for permission. Only after a click: browsers refuse it otherwise. */
async function ask(): Promise<NotificationPermission | null> {
  return permission() && Notification.requestPermission();
}

/** Ask for permission, and explain what to do if it is not given. */
export async function askOrSay(trans: TranslationBundle): Promise<void> {
  if ((await ask()) !== 'granted') {
    Toast.warning(
      trans.__(
        'The browser does not show messages of this page. Its settings for the page can change that.'
      )
    );
  }
}

function show(text: string, tag: string, open: () => void): void {
  try {
    const message = new Notification('GPUs', { body: text, tag });
    message.onclick = () => {
      window.focus();
      open();
      message.close();
    };
  } catch {
    // some mobile browsers have the class but no such messages: JupyterLab's own is shown
  }
}
