/**
 * Two notebooks share a GPU, without a person: `node demo_sharing.mjs EXPLORING TRAINING IMAGES [pictures]`.
 *
 * The training runs all the time; the other notebook rests, and then wants more than its half. What is checked is what
 * the two panels show of it, as text. Exit status 0 only if all of it is true.
 */
import assert from 'node:assert/strict';
import { inBrowser, NotebookPage, say, THEMES, until } from './demo_page.mjs';

const [EXPLORING, TRAINING, IMAGES, PICTURES] = process.argv.slice(2);

/** Returns the values of the table on the card of the share, by name of the row. */
async function facts({ panel }) {
  const rows = panel.locator('.jp-gpu-Share-table tr');
  return Object.fromEntries(await rows.evaluateAll(all => all.map(({ cells }) => [cells[0].textContent, cells[1].textContent])));
}

/** Returns 95 for "95 % of the GPU now, 50 % allocated". */
const slice = ({ Slice }) => parseFloat(Slice);

/** Seconds of "850 ms of 1 s, the next expires in 12 s": 0.85. */
const saved = ({ Bank }) => seconds(Bank.split(' of ')[0]);

/** Seconds of "93 % now, 850 ms in all": 0.85. */
const inAll = text => seconds(text.match(/now, (.*) in all/)[1]);

function seconds(text) {
  const [, minutes, amount, unit] = text.match(/^(?:(\d+) min )?([\d.]+) (ms|s)$/) ?? assert.fail(`no time: ${text}`);
  return 60 * Number(minutes ?? 0) + Number(amount) * (unit === 'ms' ? 0.001 : 1);
}

/** Opens a page, takes a share of the GPU, and opens the table on the card. */
async function open(context, address, cell) {
  const notebook = await NotebookPage.open(context, address, IMAGES);
  await notebook.run(cell);
  await notebook.panel.locator('.jp-gpu-Share summary').click();
  await until('the card tells of the share', async () => 'Slice' in (await facts(notebook)));
  return notebook;
}

/** Waits until the slice of a share is as `wanted` says, and the last change on its card is that way and has a reason. */
async function adjusted(name, notebook, wanted, more) {
  const said = await until(`the slice of ${name} is as it should be, with a reason`, async () => {
    const all = await notebook.panel.locator('.jp-gpu-Share-adjustments li').allInnerTexts();
    const last = all.find(text => text.includes('→')) ?? '';
    const [, from, to] = last.match(/([\d.]+) % → ([\d.]+) %: \S/) ?? [];
    return to && Number(to) > Number(from) === more && wanted(slice(await facts(notebook))) && last;
  });
  say(`${name}: slice ${slice(await facts(notebook))} %. ${said}`);
}

/** Waits until the bank is nearly full; what the table says then. */
function rested(exploring) {
  return until('the bank is nearly full', async () => {
    const now = await facts(exploring);
    return saved(now) >= 0.9 && now;
  }, 40_000);
}

/** More work than the bank has: it falls, the other share is back at its half at once, with the reason. */
async function burst(exploring, training) {
  const before = await rested(exploring);
  say(`exploring rests: ${saved(before).toFixed(2)} s of GPU time in its bank`);
  const cell = await exploring.find('work(4)');
  await exploring.start(cell);
  await until('the bank pays', async () => inAll((await facts(exploring))['From the bank']) > inAll(before['From the bank']) + 0.2);
  assert.ok((await exploring.cell(cell)).running, 'The burst was over before it was seen.');
  await adjusted('training', training, value => value <= 55, false);
  const low = await until('the bank is nearly empty', async () => {
    const now = await facts(exploring);
    return saved(now) <= 0.2 && now;
  });
  assert.ok((await exploring.cell(cell)).running, 'The burst was over before its bank was empty.');
  say(`exploring works: ${saved(low).toFixed(2)} s left in its bank, ${inAll(low['From the bank']).toFixed(2)} s borrowed in all`);
  assert.equal(slice(low), 50, 'who works has its own half');
  await Promise.all([exploring.picture('exploring'), training.picture('training')]);
  await exploring.ended(cell, 60_000);
  say((await exploring.cell(cell)).text.trim());
}

/** The pictures of the documentation: what both notebooks and cards show in the middle of a burst, in both themes. */
async function takePictures(context, exploring, training) {
  const both = [exploring, training];
  for (const notebook of both) {
    await notebook.hideFiles();
    await notebook.panel.locator('.jp-gpu-Share summary').click();
    await notebook.page.setViewportSize({ width: 980, height: 1150 });
  }
  for (const [name, theme] of THEMES) {
    for (const notebook of both) {
      await notebook.theme(theme);
      await until('notebook and card are equally wide', () =>
        notebook.page.evaluate(() => {
          window.jupyterapp.shell._hsplitPanel.setRelativeSizes([0, 0.5, 0.5]);
          return document.querySelector('.jp-gpu-Card').clientWidth > 380;
        })
      );
      await notebook.panel.locator('.jp-gpu-Card').evaluate(card => card.scrollIntoView({ block: 'end' }));
    }
    await exploring.page.waitForTimeout(8_000); // the training grows meanwhile
    await exploring.run('work(0.5)');
    await rested(exploring);
    const cell = await exploring.find('work(4)');
    await exploring.start(cell);
    await until('half of the bank is spent', async () => saved(await facts(exploring)) < 0.5);
    const cards = await Promise.all(both.map(({ panel }) => panel.locator('.jp-gpu-Card').screenshot()));
    const short = [await end(exploring, 'work(0.5)'), await end(exploring, 'work(4)')];
    await beside(context, name, [short, [await end(training, 'seconds =')]].map((cells, i) => [cells, cards[i]]));
    await exploring.ended(cell, 60_000);
  }
}

/** A picture of the cell with `text` in it, of the end of it if it is long. */
async function end({ page }, text) {
  const cell = page.locator('.jp-Notebook .jp-CodeCell').filter({ hasText: text }).first();
  await cell.evaluate(node => node.scrollIntoView({ block: 'end' }));
  const { x, y, width, height } = await cell.boundingBox();
  const most = Math.min(height, 150);
  return page.screenshot({ clip: { x, y: y + height - most, width, height: most } });
}

/** One picture: a column for each notebook, with cells above the card. */
async function beside(context, name, columns) {
  const page = await context.newPage();
  const image = shot => `<img src="data:image/png;base64,${shot.toString('base64')}">`;
  const column = ([cells, card], i) =>
    `<div><h1>${['exploring', 'training'][i]}.ipynb</h1><section>${cells.map(image).join('')}</section><main>${image(card)}</main></div>`;
  const colours = name === 'dark' ? 'background: #111; color: #fff' : 'background: #fff; color: #111';
  const style = `body { margin: 10px; display: flex; gap: 20px; font: 13px sans-serif; ${colours} }
    div { flex: 1 } h1 { font-size: 14px; margin: 0 0 8px } section { height: 150px; overflow: hidden; margin-bottom: 8px } main { max-height: 625px; overflow: hidden } img { width: 100%; display: block }`;
  await page.setViewportSize({ width: 900, height: 100 });
  await page.setContent(`<style>${style}</style>${columns.map(column).join('')}`);
  await page.screenshot({ path: `${IMAGES}/sharing-${name}.png`, fullPage: true });
  await page.close();
}

await inBrowser(IMAGES, async context => {
  const [training, exploring] = await Promise.all([
    open(context, TRAINING, 'gpu.resize(0.05)'),
    open(context, EXPLORING, 'gpu.resize(0.5)')
  ]);
  for (const notebook of [training, exploring]) {
    await notebook.panel.getByText(/Shared with 1 other/).first().waitFor();
  }
  say('two servers share one GPU');
  const loop = await training.find('seconds =');
  await Promise.all([training.run('def train'), exploring.run('def work')]);
  await training.start(loop);
  await until('the training runs', async () => (await training.cell(loop)).text.includes('█'));
  await adjusted('training', training, value => value >= 80, true);
  await burst(exploring, training);
  await adjusted('training', training, value => value >= 60, true);
  await exploring.run('gpu.usage()');
  if (PICTURES) {
    await takePictures(context, exploring, training);
  }
  assert.ok((await training.cell(loop)).running, 'The training ended too early.');
  await training.command('notebook:interrupt-kernel');
  say('One notebook burst from its bank, the other was given less and more again, each with its reason.');
});
