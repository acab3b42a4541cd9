/**
 * The slider that `gpu` shows in a cell, as an ES module for anywidget.
 *
 * It talks to the server itself, by REST and by the stream: messages to the kernel wait while a cell runs, and a
 * slider must not. Only where the page does not know its server (no `jupyter-config-data`) does it ask the kernel.
 * Nothing secret is kept in the widget's state: the token, if any, stays in the page.
 */

const API = 'jupyter-gpu/api/v1/';
const LONGEST_PAUSE = 30000;

// ---------------------------------------------------------------------------------------------- pure parts

/** `2000` → `"2"`, `250` → `"0.25"`. */
export function formatGpus(milli) {
  return String(milli / 1000);
}

/** What a screen reader says for a value: `"2 of 4 GPUs"`. */
export function valueText(milli, limit) {
  return `${formatGpus(milli)} of ${formatGpus(limit)} ${limit === 1000 ? 'GPU' : 'GPUs'}`;
}

/** The places of the slider: the server's steps, and the current wish if code asked for something between. */
export function places(view) {
  const wanted = view.amounts.requested;
  return [...new Set([0, ...view.steps, wanted])].sort((a, b) => a - b);
}

/** Where the server is and how to be let in, from the page's configuration; null if it has none. */
export function endpoint(config, origin, cookie) {
  if (!config || typeof config.baseUrl !== 'string') {
    return null;
  }
  const base = new URL(config.baseUrl.replace(/\/?$/, '/'), origin);
  if (base.origin !== new URL(origin).origin) {
    return null; // the page's configuration never sends a token elsewhere
  }
  const rest = new URL(API, base);
  const stream = new URL('stream', rest);
  stream.protocol = rest.protocol === 'https:' ? 'wss:' : 'ws:';
  const headers = { 'Content-Type': 'application/json' };
  if (config.token) {
    headers.Authorization = `token ${config.token}`;
    stream.searchParams.set('token', config.token);
  } else {
    const found = /(?:^|;\s*)_xsrf=([^;]*)/.exec(cookie);
    if (found) {
      headers['X-XSRFToken'] = decodeURIComponent(found[1]);
    }
  }
  return { request: new URL('request', rest).href, stream: stream.href, headers };
}

/** Whether `next` replaces `now`: a later version, or any version of another server. */
export function isNewer(next, now) {
  return !now || next.instance !== now.instance || next.version > now.version;
}

/** Milliseconds before attempt `n` (0 is the first); `random` from 0 to 1 spreads the tabs of many people. */
export function pause(n, random) {
  return Math.min(LONGEST_PAUSE, 500 * 2 ** Math.min(n, 10)) * (0.5 + random / 2);
}

/**
 * Wishes, one at a time: while one is on its way a newer one waits, and replaces what waited before it. So the server
 * gets them in order, and a late answer never overwrites a newer wish.
 *
 * `send(milli)` returns a promise; `changed()` is called when `pending` or `error` changed.
 */
export class Wishes {
  constructor(send, changed) {
    this.send = send;
    this.changed = changed;
    this.pending = null;
    this.error = '';
    this.busy = false;
    this.sequence = 0;
  }

  async make(milli) {
    const mine = ++this.sequence;
    this.pending = milli;
    this.error = '';
    this.changed();
    if (this.busy) {
      return;
    }
    this.busy = true;
    let sent = mine - 1;
    while (sent !== this.sequence) {
      sent = this.sequence;
      try {
        await this.send(this.pending);
      } catch (error) {
        if (sent === this.sequence) {
          this.error = String(error.message || error);
        }
      }
    }
    this.busy = false;
    this.pending = null;
    this.changed();
  }
}

// ------------------------------------------------------------------------------------------ the connection

/** One stream for all widgets of the page: each opens it or joins it, the last one closes it. */
class Stream {
  constructor(where) {
    this.where = where;
    this.listeners = new Set();
    this.view = null;
    this.attempt = 0;
  }

  join(listener) {
    this.listeners.add(listener);
    if (this.listeners.size === 1) {
      this.open();
    } else if (this.view) {
      listener.view(this.view);
    }
    return () => {
      this.listeners.delete(listener);
      if (!this.listeners.size) {
        this.close();
      }
    };
  }

  show(view) {
    if (isNewer(view, this.view)) {
      this.view = view;
      this.listeners.forEach(listener => listener.view(view));
    }
  }

  open() {
    const socket = new WebSocket(this.where.stream);
    this.socket = socket;
    socket.onopen = () => socket.send(JSON.stringify({ type: 'samples', on: false }));
    socket.onmessage = event => {
      const message = JSON.parse(event.data);
      if (message.type === 'view') {
        this.attempt = 0;
        this.show(message.view);
      } else if (message.type === 'error') {
        this.listeners.forEach(listener => listener.lost(message.message));
      }
    };
    socket.onclose = () => {
      if (this.socket !== socket) {
        return;
      }
      this.listeners.forEach(listener => listener.lost('The server does not answer; trying again…'));
      this.timer = setTimeout(() => this.open(), pause(this.attempt++, Math.random()));
    };
  }

  close() {
    clearTimeout(this.timer);
    const socket = this.socket;
    this.socket = null;
    this.view = null;
    if (socket) {
      socket.onmessage = null;
      socket.onclose = null;
      socket.close();
    }
  }

  async wish(milli) {
    let answer;
    try {
      answer = await fetch(this.where.request, {
        method: 'PUT',
        credentials: 'same-origin',
        cache: 'no-store',
        headers: this.where.headers,
        body: JSON.stringify({ milli, overrule: true })
      });
    } catch {
      throw new Error('The server does not answer. Look whether it still runs.');
    }
    const body = await answer.json().catch(() => ({}));
    if (!answer.ok) {
      throw new Error(body.message || `The server answered with status ${answer.status}.`);
    }
    this.show(body);
  }
}

/** The page's stream; widgets are loaded as separate modules, so it hangs on the page. */
function pageStream(where) {
  const key = Symbol.for('jupyter-gpu.widget-stream');
  const known = globalThis[key];
  if (known && known.where.stream === where.stream) {
    return known;
  }
  return (globalThis[key] = new Stream(where));
}

/** The kernel instead of the server, for pages that do not know it: slower, and waits for a running cell. */
function kernelStream(model) {
  return {
    join(listener) {
      const heard = () => {
        const view = model.get('view');
        if (view && view.steps) {
          listener.view(view);
        }
      };
      model.on('change:view', heard);
      heard();
      return () => model.off('change:view', heard);
    },
    wish(milli) {
      const sequence = model.get('wish').sequence + 1;
      const answered = new Promise((resolve, reject) => {
        const heard = () => {
          const answer = model.get('answer');
          if (answer.sequence === sequence) {
            model.off('change:answer', heard);
            answer.error ? reject(new Error(answer.error)) : resolve();
          }
        };
        model.on('change:answer', heard);
      });
      model.set('wish', { sequence, milli });
      model.save_changes();
      return answered;
    }
  };
}

function connect(model) {
  const element = document.getElementById('jupyter-config-data');
  let config = null;
  try {
    config = element && JSON.parse(element.textContent);
  } catch {
    config = null;
  }
  const where = endpoint(config, location.href, document.cookie);
  return where ? pageStream(where) : kernelStream(model);
}

// ------------------------------------------------------------------------------------------------ the view

let count = 0;

function build(el) {
  const id = `jupyter-gpu-widget-${Date.now().toString(36)}-${count++}`;
  el.innerHTML = `
    <div style="display: flex; flex-wrap: wrap; align-items: center; gap: 0.25em 0.75em; max-width: 36em">
      <label for="${id}">GPUs</label>
      <input id="${id}" type="range" min="0" max="1" step="1" value="0" disabled aria-describedby="${id}-line"
        data-lm-suppress-shortcuts="true" style="flex: 1 1 12em; min-width: 8em">
      <output for="${id}" style="min-width: 7em"></output>
      <div id="${id}-line" role="status" aria-live="polite" style="flex: 1 0 100%"></div>
      <div role="alert" style="flex: 1 0 100%; color: var(--jp-error-color0, #b00020)"></div>
    </div>`;
  const find = selector => el.querySelector(selector);
  return { input: find('input'), output: find('output'), line: find('[role=status]'), alert: find('[role=alert]') };
}

/** Change the text only if it differs: a live region speaks at every change. */
function say(node, text) {
  if (node.textContent !== text) {
    node.textContent = text;
  }
}

const MOVES = new Set([
  ...['ArrowLeft', 'ArrowRight', 'ArrowUp', 'ArrowDown'],
  ...['PageUp', 'PageDown', 'Home', 'End']
]);

function render({ model, el }) {
  const parts = build(el);
  const stream = connect(model);
  let view = null;
  let lost = '';
  let held = false; // the thumb is being moved, by mouse or by keys
  let steps = [0];

  const wishes = new Wishes(milli => stream.wish(milli), draw);

  function chosen() {
    return steps[Number(parts.input.value)] ?? 0;
  }

  function label() {
    const text = valueText(chosen(), view.limit);
    parts.input.setAttribute('aria-valuetext', text);
    say(parts.output, text);
  }

  function draw() {
    say(parts.alert, wishes.error || lost);
    if (!view) {
      return;
    }
    const simulated = view.simulated ? ' (simulated)' : '';
    say(parts.line, view.sentence + simulated);
    if (!held) {
      steps = places(view);
      parts.input.max = String(Math.max(1, steps.length - 1));
      parts.input.disabled = steps.length < 2;
      const wanted = wishes.pending ?? view.amounts.requested;
      parts.input.value = String(Math.max(0, steps.indexOf(wanted)));
      label();
    }
  }

  function commit() {
    held = false;
    const milli = chosen();
    if (milli !== (wishes.pending ?? view.amounts.requested)) {
      wishes.make(milli);
    } else {
      draw();
    }
  }

  let typing = false; // with keys `change` comes at every repeat, so the wish is made when the key is let go
  parts.input.addEventListener('input', () => {
    held = true;
    label();
  });
  parts.input.addEventListener('change', () => typing || commit());
  parts.input.addEventListener('keydown', event => {
    typing = typing || MOVES.has(event.key);
    if (event.key === 'Escape' && held) {
      held = typing = false;
      draw();
    }
  });
  const letGo = () => {
    if (typing) {
      typing = false;
      commit();
    }
  };
  parts.input.addEventListener('keyup', letGo);
  parts.input.addEventListener('blur', letGo);

  const leave = stream.join({
    view(next) {
      view = next;
      lost = '';
      draw();
    },
    lost(text) {
      lost = text;
      draw();
    }
  });
  return leave;
}

export default { render };
