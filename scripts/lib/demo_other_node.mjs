/**
 * The demo's notebook whose node has no GPU left, without a person: `node demo_other_node.mjs PAGE IMAGES [pictures]`.
 *
 * Runs its cells in a real browser. Exit status 0 only if the cell with `%%gpu` ran in another pod, and what it assigned came
 * back; where the work really ran is asked of others (`demo_other_node.py`).
 */
import assert from 'node:assert/strict';
import { inBrowser, NotebookPage, say, THEMES } from './demo_page.mjs';

const [PAGE, IMAGES, PICTURES] = process.argv.slice(2);
const START = 120_000; // milliseconds for a worker's pod to start, on a busy machine

/** The pictures of the documentation: the cell, and the card of the worker in which it ran, in both themes. */
async function takePictures(notebook) {
  await notebook.hideFiles();
  for (const [name, theme] of THEMES) {
    await notebook.theme(theme);
    await notebook.scrollTo(await notebook.find('%%gpu 2'), 'center');
    await notebook.page.waitForTimeout(1000); // until the page has its colours and its widths
    await notebook.picture(`remote-${name}`);
  }
}

await inBrowser(IMAGES, async context => {
  const notebook = await NotebookPage.open(context, PAGE, IMAGES);
  say('the notebook is open and its kernel is idle');
  await notebook.run('gpu.resize(2)', START);
  say('gpu.resize(2) has two GPUs of the other node');
  const there = await notebook.run('%%gpu 2');
  say(there.trim());
  await notebook.picture('other-node');
  const here = await notebook.run('This one runs in');
  say(here.trim());
  if (PICTURES) {
    await takePictures(notebook);
  }
  const [, remote] = there.match(/runs in (\S+) with GPU-\S+,GPU-/) ?? [];
  const [, local, kernels] = here.match(/runs in (\S+); the GPUs ran (\d+) kernels/) ?? [];
  assert.ok(remote && local && remote !== local, 'the cell ran in another pod');
  assert.ok(Number(kernels) > 0, 'what it assigned came back');
  assert.match(await notebook.run('gpu.run(gpu_work'), /^[1-9]\d* kernels/, 'a function had GPUs, too');
});
