/** Steps of the demo's checks with a notebook in a real browser, as a user does them. */
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';

const { chromium } = createRequire(
  new URL('../../labextension/ui-tests/package.json', import.meta.url)
)('@playwright/test');

export const WAIT = 60_000; // milliseconds for anything that happens in the page, on a busy machine
export const THEMES = [
  ['light', 'JupyterLab Light'],
  ['dark', 'JupyterLab Dark']
];
const SIZE = { width: 1360, height: 850 };

const started = Date.now();

/** Prints a line with the time since the start. */
export function say(text) {
  console.log(`${((Date.now() - started) / 1000).toFixed(1).padStart(5)} s  ${text}`);
}

/** Waits until `condition` holds. */
export async function until(what, condition, patience = WAIT) {
  const end = Date.now() + patience;
  for (;;) {
    const found = await condition();
    if (found) {
      return found;
    }
    assert.ok(Date.now() < end, `Waited ${patience / 1000} s in vain until ${what}.`);
    await new Promise(again => setTimeout(again, 50));
  }
}

/**
 * Calls `body` with a person's session, and a function that makes another; where that fails, takes a picture of each page,
 * and exits with status 1.
 */
export async function inBrowser(images, body) {
  const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM,
    args: ['--no-sandbox', '--disable-gpu', '--disable-background-networking', '--no-first-run']
  });
  const session = async () => {
    const context = await browser.newContext({ viewport: SIZE, deviceScaleFactor: 2 });
    context.setDefaultTimeout(WAIT);
    return context;
  };
  try {
    await body(await session(), session);
  } catch (error) {
    console.error(error.message ?? error);
    for (const [i, page] of browser.contexts().flatMap(context => context.pages()).entries()) {
      const path = `${images}/failed${i || ''}.png`;
      await page.screenshot({ path }).then(() => console.error(`A picture of the page: ${path}`), () => undefined);
    }
    process.exitCode = 1;
  } finally {
    await browser.close();
  }
}

/** A page of JupyterLab with one notebook, whose kernel is idle, and the panel. */
export class NotebookPage {
  static async open(context, address, images) {
    const page = await context.newPage();
    await page.goto(address);
    await page.locator('.jp-Notebook').waitFor();
    await page.waitForFunction(
      () => window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'
    );
    const notebook = await page.evaluateHandle(() => window.jupyterapp.shell.currentWidget);
    const opened = new NotebookPage(page, notebook, images);
    await page.locator('#jp-main-statusbar').getByText(/^GPU/).click();
    await opened.slider.waitFor();
    return opened;
  }

  constructor(page, notebook, images) {
    this.page = page;
    this.notebook = notebook; // handle of the notebook's panel in the page
    this.images = images;
    this.panel = page.locator('#jupyter-gpu-panel');
    this.slider = this.panel.getByRole('slider', { name: 'GPUs for this server' });
  }

  /** A picture of the page. */
  picture(name) {
    return this.page.screenshot({ path: `${this.images}/${name}.png` });
  }

  /** Gives the notebook and the panel all of the page. */
  async hideFiles() {
    await this.command('application:toggle-left-area');
  }

  async theme(theme) {
    await this.command('apputils:change-theme', { theme });
    await this.page.locator(`body[data-jp-theme-name="${theme}"]`).waitFor({ state: 'attached' });
  }

  command(id, args = {}) {
    return this.page.evaluate(([name, values]) => void window.jupyterapp.commands.execute(name, values), [id, args]);
  }

  /** Shows a cell at the top (`start`) or in the middle. */
  scrollTo(index, where = 'start') {
    return this.notebook.evaluate((panel, [value, at]) => panel.content.scrollToItem(value, at), [index, where]);
  }

  /** Index of the code cell that has `text` in it. */
  find(text) {
    return this.notebook.evaluate((panel, value) => {
      const sources = panel.content.widgets.map(cell => cell.model.type === 'code' && cell.model.sharedModel.source);
      const index = sources.findIndex(source => source && source.includes(value));
      if (index < 0) {
        throw new Error(`no cell has: ${value}`);
      }
      return index;
    }, text);
  }

  /** Returns the state and the output of a cell. */
  cell(index) {
    return this.notebook.evaluate((panel, value) => {
      const model = panel.content.widgets[value].model;
      const outputs = model.outputs.toJSON();
      return {
        running: model.executionState === 'running',
        started: model.executionState === 'running' || model.executionCount !== null,
        text: outputs.map(output => [output.text ?? ''].flat().join('')).join(''),
        errors: outputs.filter(output => output.output_type === 'error').map(output => `${output.ename}: ${output.evalue}`)
      };
    }, index);
  }

  /** Starts a cell with the keyboard, as a person does. */
  async start(index) {
    await this.page.bringToFront();
    await this.notebook.evaluate((panel, value) => {
      panel.content.activeCellIndex = value;
      panel.content.mode = 'command';
      panel.content.activate();
      return panel.content.scrollToItem(value, 'center');
    }, index);
    await this.page.keyboard.press('Control+Enter');
    await until(`cell ${index} starts`, async () => (await this.cell(index)).started);
  }

  /** Interrupts the kernel, and waits until the cell has ended. */
  async interrupt(index) {
    await this.notebook.evaluate(panel => panel.sessionContext.session.kernel.interrupt());
    await until(`cell ${index} ends`, async () => !(await this.cell(index)).running);
  }

  /** Waits until a cell has ended well. */
  async ended(index, patience = WAIT) {
    await until(`cell ${index} ends`, async () => !(await this.cell(index)).running, patience);
    assert.deepEqual((await this.cell(index)).errors, [], `cell ${index} failed`);
  }

  /** Starts the cell that has `text` in it, and waits until it has ended well; what it printed. */
  async run(text, patience = WAIT) {
    const index = await this.find(text);
    await this.start(index);
    await this.ended(index, patience);
    return (await this.cell(index)).text;
  }

  /** Drags the slider's thumb with the mouse until it says `count`. */
  async drag(count) {
    const { page, slider } = this;
    await page.bringToFront();
    await slider.scrollIntoViewIfNeeded();
    const box = await slider.boundingBox();
    const at = await slider.evaluate(input => [Number(input.value), Number(input.max)]);
    const thumb = 16; // px; the middle of the thumb stays half of it away from both ends
    const x = box.x + thumb / 2 + (at[0] / at[1]) * (box.width - thumb);
    const y = box.y + box.height / 2;
    const says = async () => (await slider.getAttribute('aria-valuetext')) ?? '';
    const direction = Math.sign(count - parseFloat(await says()));
    await page.mouse.move(x, y);
    await page.mouse.down();
    for (let moved = 0; parseFloat(await says()) !== count; moved += 4) {
      assert.ok(moved < box.width, `The slider cannot be dragged to ${count}; it says ${await says()}.`);
      await page.mouse.move(x + direction * moved, y);
    }
    await page.mouse.up();
    say(`dragged the slider to ${count}`);
  }

  /** Starts the cell that tries each device all the time, of which none can be used yet; its index, and its process. */
  async watchDevices() {
    await this.run('from jupyter_gpu import gpu, simulate');
    const pid = await this.ask('import os; print(os.getpid())'); // the cells use os, too
    await this.run('def usable');
    const cell = await this.find('seconds =');
    await this.start(cell);
    await until('the cell tries the devices', async () => (await this.cell(cell)).text.includes('□'));
    assert.equal(await this.lights(cell), 0, 'A device can be used before it was asked for.');
    return { cell, pid };
  }

  /** How many devices the last line of the running cell calls usable. */
  async lights(cell) {
    const line = (await this.cell(cell)).text.trimEnd().split('\n').at(-1);
    return (line.match(/■/g) ?? []).length;
  }

  /** Waits until the running cell can use `count` devices. */
  async sees(cell, count) {
    const before = Date.now();
    await until(`the cell can use ${count} devices`, async () => (await this.lights(cell)) === count);
    assert.ok((await this.cell(cell)).running, 'The cell ended too early.');
    say(`the running cell can use ${count} device(s) (seen ${Date.now() - before} ms later)`);
  }

  /** Runs code in the notebook's kernel; what it prints, as JSON. */
  async ask(code) {
    const printed = await this.notebook.evaluate(async (panel, value) => {
      const future = panel.sessionContext.session.kernel.requestExecute({ code: value, store_history: false });
      let text = '';
      future.onIOPub = message => {
        text += message.header.msg_type === 'stream' ? message.content.text : '';
      };
      const reply = await future.done;
      return reply.content.status === 'ok' ? text : `{"error": ${JSON.stringify(reply.content.evalue)}}`;
    }, code);
    return JSON.parse(printed);
  }
}
