/** Saying what became of a wait, in JupyterLab and, if allowed, on the desktop. Loaded when there is something to say. */
import { Notification as Toast } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import { IView } from './api';
import { claimAlone, patience } from './claim';
import { INews, ISight, isWorthSaying, Kind } from './news';
import { sentence } from './sentence';

/** What it needs. */
export interface INotifyOptions {
  readonly trans: TranslationBundle;
  /** Where the tab's server is: two servers can have news of one name. */
  readonly place: string;
  /** Whether the desktop is to tell, too. */
  readonly desktop: boolean;
  readonly sight: ISight;
  /** Milliseconds since somebody saw this tab. */
  readonly unseen: number;
  /** Show the panel. */
  readonly open: () => void;
}

const TYPES: Record<Kind, Toast.TypeOptions> = {
  came: 'success',
  partly: 'info',
  cannot: 'warning',
  lost: 'error'
};

/** Say `news`, unless another tab did or it is seen anyway; who sees it keeps the others silent. */
export async function notify(news: INews, view: IView, options: INotifyOptions): Promise<void> {
  const { sight, unseen, place, trans, open } = options;
  const pause = patience(document.hasFocus(), sight.hidden, unseen);
  if (pause) {
    await new Promise(done => setTimeout(done, pause));
  }
  if (!(await claimAlone(`${place} ${news.id}`)) || !isWorthSaying(news, sight)) {
    return;
  }
  const text = words(news.kind, sentence(view, trans), trans);
  const asks = options.desktop && permission() === 'default';
  Toast.emit(text, TYPES[news.kind], {
    // What comes while nobody looks stays until somebody does.
    autoClose: news.kind === 'lost' || sight.hidden ? false : 15_000,
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
  if (options.desktop && sight.hidden && permission() === 'granted') {
    show(text, news.id, open);
  }
}

/** The message of JupyterLab, which cuts what is longer than 140 characters. */
export function words(kind: Kind, now: string, trans: TranslationBundle): string {
  switch (kind) {
    case 'came':
      return trans.__('The GPUs that you waited for are here: %1', now);
    case 'partly':
      return trans.__('Some of the GPUs that you wait for are here: %1', now);
    case 'cannot':
      return trans.__('The GPUs that you waited for cannot come: %1', now);
    case 'lost':
      return now[0].toUpperCase() + now.slice(1);
  }
}

/** Whether the browser may show messages on the desktop; `null` if it cannot. */
export function permission(): NotificationPermission | null {
  return typeof Notification === 'function' ? Notification.permission : null;
}

/** Have the browser ask for it. Only from a click: browsers refuse it otherwise, and people dislike it. */
async function ask(): Promise<NotificationPermission | null> {
  return permission() && Notification.requestPermission();
}

/** The same, and say what to do where it does not allow them. */
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
    // some browsers of phones have the name and no such messages: JupyterLab's own is there
  }
}
