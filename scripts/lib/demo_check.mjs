/**
 * The slider's demo without a person: `node demo_check.mjs PAGE MODE IMAGES [pictures]`.
 *
 * Runs the notebook's long cell in a real browser and drags the slider from 0 to 2 and to 1 while it
 * runs. Then asks the kernel what it saw. Exit status 0 only if all of it is true.
 */
import assert from 'node:assert/strict';
import { inBrowser, NotebookPage, say, THEMES } from './demo_page.mjs';

const [PAGE, MODE, IMAGES, PICTURES] = process.argv.slice(2);

/** Drags to `count` and waits until the running cell sees it. */
async function dragAndSee(notebook, cell, count) {
  await notebook.drag(count);
  await notebook.sees(cell, count);
  await notebook.page.getByText(new RegExp(`${count} of 4 .*attached`)).first().waitFor();
}

async function checkDrag(notebook) {
  const { cell, pid } = await notebook.watchDevices();
  await dragAndSee(notebook, cell, 2);
  await notebook.picture('two');
  await dragAndSee(notebook, cell, 1);
  await notebook.picture('one');
  await notebook.interrupt(cell);

  const seen = await notebook.ask('import json; print(json.dumps(seen))');
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
  assert.deepEqual(await notebook.ask('import os; print([os.getpid(), answer])'), [pid, 42], 'and still is');
  const denied = await notebook.ask(
    'print(sum(not usable(path) for path in paths) if enforced else len(paths) - len(gpu.devices))'
  );
  assert.equal(denied, 3, 'three of the four devices cannot be used at the end');
  await notebook.ask('gpu.release(); print("null")'); // a hub that is checked next has the nodes to itself
}

/** The pictures of the documentation: the panel with two GPUs at work, in both themes. */
async function takePictures(notebook) {
  await notebook.run('from jupyter_gpu import gpu, simulate');
  await notebook.run('gpu.resize(2)');
  const work = notebook.ask('simulate.work(30); print("null")');
  await notebook.hideFiles();
  await notebook.scrollTo(0);
  await notebook.page.waitForTimeout(20_000); // charts need something to show
  for (const [name, theme] of THEMES) {
    await notebook.theme(theme);
    await notebook.page.waitForTimeout(3000);
    await notebook.picture(name);
  }
  await work;
}

await inBrowser(IMAGES, async context => {
  const notebook = await NotebookPage.open(context, PAGE, IMAGES);
  say('the notebook is open and its kernel is idle');
  await notebook.picture('start');
  await checkDrag(notebook);
  if (PICTURES) {
    await takePictures(notebook);
  }
  say(
    MODE === 'enforced'
      ? 'The running kernel gained and lost GPUs by the slider: open() succeeded and failed accordingly.'
      : 'The running kernel gained and lost GPUs by the slider (soft mode: open() is not guarded, which needs root).'
  );
});
