/**
 * The demo without a person: `node demo_check.mjs PAGE MODE IMAGES [pictures]`.
 *
 * Runs the notebook's long cell in a real browser and drags the slider from 0 to 2 and to 1 while it
 * runs. Then asks the kernel what it saw. Exit status 0 only if all of it is true.
 */
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';

const { chromium } = createRequire(
  new URL('../../labextension/ui-tests/package.json', import.meta.url)
)('@playwright/test');

const [PAGE, MODE, IMAGES, PICTURES] = process.argv.slice(2);
const WAIT = 20_000; // milliseconds for anything that happens in the page

const started = Date.now();
function say(text) {
  console.log(`${((Date.now() - started) / 1000).toFixed(1).padStart(5)} s  ${text}`);
}

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM,
  args: ['--no-sandbox', '--disable-gpu', '--disable-background-networking', '--no-first-run']
});
const page = await browser.newPage({ viewport: { width: 1360, height: 850 }, deviceScaleFactor: 2 });
page.setDefaultTimeout(WAIT);

const slider = page.getByRole('slider', { name: 'GPUs for this server' }).first();

/** A picture of the page. */
function picture(name) {
  return page.screenshot({ path: `${IMAGES}/${name}.png` });
}

let notebook; // handle of the notebook's panel in the page

/** Calls `body` in the page with the notebook's panel and `argument`. */
function inNotebook(body, argument) {
  return notebook.evaluate(body, argument);
}

/** Index of the code cell that has `text` in it. */
function findCell(text) {
  return inNotebook((panel, value) => {
    const sources = panel.content.widgets.map(cell => cell.model.type === 'code' && cell.model.sharedModel.source);
    const index = sources.findIndex(source => source && source.includes(value));
    if (index < 0) {
      throw new Error(`no cell has: ${value}`);
    }
    return index;
  }, text);
}

/** Starts a cell with the keyboard, as a person does. */
async function startCell(index) {
  await inNotebook((panel, value) => {
    panel.content.activeCellIndex = value;
    panel.content.mode = 'command';
    panel.content.activate();
    return panel.content.scrollToItem(value, 'center');
  }, index);
  await page.keyboard.press('Control+Enter');
  await until(`cell ${index} starts`, async () => (await cellState(index)).started);
}

/** What a cell does and has printed. */
function cellState(index) {
  return inNotebook((panel, value) => {
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

/** Starts a cell and waits until it has ended well. */
async function runCell(index, patience = WAIT) {
  await startCell(index);
  await until(`cell ${index} ends`, async () => !(await cellState(index)).running, patience);
  assert.deepEqual((await cellState(index)).errors, [], `cell ${index} failed`);
}

async function until(what, condition, patience = WAIT) {
  const end = Date.now() + patience;
  while (!(await condition())) {
    assert.ok(Date.now() < end, `Waited ${patience / 1000} s in vain until ${what}.`);
    await page.waitForTimeout(50);
  }
}

/** Drags the slider's thumb with the mouse until it says `count`. */
async function drag(count) {
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

/** Runs code in the notebook's kernel; what it prints, as JSON. */
async function ask(code) {
  const printed = await inNotebook(async (panel, value) => {
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

/** How many devices the last line of the running cell calls usable. */
async function lights(index) {
  const line = (await cellState(index)).text.trimEnd().split('\n').at(-1);
  return (line.match(/■/g) ?? []).length;
}

/** Drags to `count` and waits until the running cell sees it. */
async function dragAndSee(cell, count) {
  await drag(count);
  const before = Date.now();
  await until(`the cell can use ${count} devices`, async () => (await lights(cell)) === count);
  assert.ok((await cellState(cell)).running, 'The cell ended too early.');
  say(`the running cell can use ${count} device(s) (seen ${Date.now() - before} ms later)`);
  await page.getByText(new RegExp(`${count} of 4 .*attached`)).first().waitFor();
}

async function checkDrag() {
  await runCell(await findCell('def usable'));
  const pid = await ask('import os; print(os.getpid())');
  const cell = await findCell('seconds =');
  await startCell(cell);
  await until('the cell tries the devices', async () => (await cellState(cell)).text.includes('□'));
  assert.equal(await lights(cell), 0, 'A device can be used before it was asked for.');
  await dragAndSee(cell, 2);
  await picture('two');
  await dragAndSee(cell, 1);
  await picture('one');
  await until('the cell ends', async () => !(await cellState(cell)).running, 90_000);

  const seen = await ask('import json; print(json.dumps(seen))');
  for (const { time, usable } of seen) {
    say(`kernel at ${new Date(time * 1000).toISOString().slice(11, 23)}: ${usable.map(yes => (yes ? '■' : '□')).join(' ')}`);
  }
  const counts = seen.map(({ usable }) => usable.filter(Boolean).length);
  assert.equal(counts[0], 0, 'at first no device could be used');
  assert.ok(counts.includes(2), 'two devices could be used');
  assert.equal(counts.at(-1), 1, 'at last one device could be used');
  assert.equal(Math.max(...counts), 2, 'never more than two devices could be used');
  assert.deepEqual([...new Set(seen.map(moment => moment.pid))], [pid], 'it was one process all the time');
  assert.deepEqual([...new Set(seen.map(moment => moment.answer))], [42], 'its variable was there all the time');
  assert.deepEqual(await ask('import os; print([os.getpid(), answer])'), [pid, 42], 'and still is');
  const denied = await ask(
    'print(sum(not usable(path) for path in paths) if enforced else len(paths) - len(gpu.devices))'
  );
  assert.equal(denied, 3, 'three of the four devices cannot be used at the end');
}

/** The pictures of the documentation: the panel with two GPUs at work, in both themes. */
async function takePictures() {
  await runCell(await findCell('from jupyter_gpu import gpu, simulate'));
  await runCell(await findCell('gpu.resize(2)'));
  const work = ask('simulate.work(30); print("null")');
  await page.evaluate(() => window.jupyterapp.commands.execute('application:toggle-left-area'));
  await inNotebook(panel => panel.content.scrollToItem(0, 'start'));
  await page.waitForTimeout(20_000); // charts need something to show
  for (const [name, theme] of [['light', 'JupyterLab Light'], ['dark', 'JupyterLab Dark']]) {
    await page.evaluate(value => window.jupyterapp.commands.execute('apputils:change-theme', { theme: value }), theme);
    await page.waitForTimeout(3000);
    await picture(name);
  }
  await work;
}

try {
  await page.goto(PAGE);
  await page.locator('.jp-Notebook').waitFor();
  await page.waitForFunction(
    () => window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'
  );
  notebook = await page.evaluateHandle(() => window.jupyterapp.shell.currentWidget);
  say('the notebook is open and its kernel is idle');
  await page.locator('#jp-main-statusbar').getByText(/^GPU/).click();
  await slider.waitFor();
  await picture('start');
  await runCell(await findCell('from jupyter_gpu import gpu, simulate'));
  await checkDrag();
  if (PICTURES) {
    await takePictures();
  }
  say(
    MODE === 'enforced'
      ? 'The running kernel gained and lost GPUs by the slider: open() succeeded and failed accordingly.'
      : 'The running kernel gained and lost GPUs by the slider (soft mode: open() is not guarded, which needs root).'
  );
} catch (error) {
  await picture('failed').catch(() => undefined);
  console.error(`${error.message ?? error}\nA picture of the page: ${IMAGES}/failed.png`);
  process.exitCode = 1;
} finally {
  await browser.close();
}
