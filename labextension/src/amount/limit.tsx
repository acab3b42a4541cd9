/** The limit of the server's user, and the time until GPUs above it are taken back. */
import { PageConfig } from '@jupyterlab/coreutils';
import type { TranslationBundle } from '@jupyterlab/translation';
import React, { useEffect, useReducer } from 'react';
import { IView } from '../api/view';
import { describeLimit, locale, timeLeft } from '../words/limit';

/** Type of the condition of a server that has more than its user's limit allows. */
export const LOWERED = 'LimitLowered';
/** Page option with the address of the page about limits; empty: there is none. */
const PAGE_OPTION = 'jupyterGpuLimits';

interface ILimitProps {
  readonly view: IView;
  readonly trans: TranslationBundle;
}

/** The limit with its source in one line; a warning while GPUs above it are to be taken back. */
export function Limit({ view, trans }: ILimitProps): React.JSX.Element | null {
  const news = lowered(view);
  const { userLimit } = view;
  const url = PageConfig.getOption(PAGE_OPTION);
  const link = url && (
    <a href={url} target="_blank" rel="noopener noreferrer" className="jp-gpu-Link">
      {trans.__('More about your limit')}
    </a>
  );
  if (news) {
    return (
      <div className="jp-gpu-Note jp-mod-warning">
        <p>{news}</p>
        <p>
          <Countdown at={userLimit?.giveBackAt ?? 0} trans={trans} /> {link}
        </p>
      </div>
    );
  }
  return !userLimit && !link ? null : (
    <p className="jp-gpu-Limit">
      {userLimit && describeLimit(userLimit, trans)} {link}
    </p>
  );
}

interface ICountdownProps {
  /** Seconds since 1970. */
  readonly at: number;
  readonly trans: TranslationBundle;
}

function Countdown({ at, trans }: ICountdownProps): React.JSX.Element {
  const left = useSecondsLeft(at);
  const when = new Date(1000 * at);
  const clock = when.toLocaleTimeString(locale(trans), { hour: '2-digit', minute: '2-digit' });
  return (
    <time dateTime={when.toISOString()}>
      {left
        ? trans.__('Time left: %1, until %2.', timeLeft(left, trans), clock)
        : trans.__('The time is over: it happens now.')}
    </time>
  );
}

/** The news for screen readers; empty if no GPUs are to be taken back. It changes once, in the last minute. */
export function useLimitNews(view: IView | null, trans: TranslationBundle): string {
  const news = view ? lowered(view) : '';
  const left = useSecondsLeft(news ? (view?.userLimit?.giveBackAt ?? 0) : 0);
  return news && left <= 60 ? trans.__('%1 Less than a minute is left.', news) : news;
}

function lowered(view: IView): string {
  return view.conditions.find(({ type }) => type === LOWERED)?.message ?? '';
}

/**
 * Whole seconds until `at`, at least 0. Renders again when its words change, which is each minute and in the last one
 * each second; a hidden page waits until it is shown.
 */
function useSecondsLeft(at: number): number {
  const [, again] = useReducer((n: number) => n + 1, 0);
  const left = Math.max(0, Math.ceil(at - Date.now() / 1000));
  useEffect(() => {
    if (!left) {
      return;
    }
    document.addEventListener('visibilitychange', again);
    const next = left > 60 ? 60 * (Math.ceil(left / 60) - 1) : left - 1;
    const timer = document.hidden
      ? undefined
      : setTimeout(again, 1000 * (at - next) - Date.now() + 1);
    return () => {
      clearTimeout(timer);
      document.removeEventListener('visibilitychange', again);
    };
  });
  return left;
}
