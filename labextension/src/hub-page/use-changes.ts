/** The live connection of this page: open while the page is seen, and told in steps. */
import { useEffect, useState } from 'react';
import { Api } from '../hub-api/call';
import { Counts, follow } from '../hub-api/changes';

/** Milliseconds between two updates, at least: each asks the service for what is shown. */
const PAUSE = 500;

/** How often each table has changed, and whether changes are known to arrive. */
export interface IChanges {
  readonly counts: Counts;
  readonly live: boolean;
}

/** Follow changes while the page is not hidden. */
export function useChanges(api: Api): IChanges {
  const [counts, setCounts] = useState<Counts>({});
  const [live, setLive] = useState(true);
  useEffect(() => {
    let newest: Counts | null = null;
    let timer: ReturnType<typeof setTimeout> | undefined;
    let end: (() => void) | null = null;
    function tell(): void {
      timer = undefined;
      if (newest) {
        setCounts(newest);
        newest = null;
        timer = setTimeout(tell, PAUSE);
      }
    }
    const follower = {
      live: setLive,
      counts: (found: Counts) => {
        newest = found;
        if (timer === undefined) {
          tell();
        }
      }
    };
    function look(): void {
      if (document.hidden) {
        end?.();
        end = null;
      } else {
        end ??= follow(api, follower);
      }
    }
    look();
    document.addEventListener('visibilitychange', look);
    return () => {
      document.removeEventListener('visibilitychange', look);
      clearTimeout(timer);
      end?.();
    };
  }, [api]);
  return { counts, live };
}
