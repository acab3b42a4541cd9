/**
 * Two notebooks share a GPU, without a person: `node demo_sharing.mjs EXPLORING TRAINING IMAGES [pictures]`.
 *
 * The training runs all the time; the other notebook rests, and then wants more than its half. What is checked is what
 * the two panels show of it, as text. Exit status 0 only if all of it is true.
 */
import assert from 'node:assert/strict';
import { inBrowser, NotebookPage, say, THEMES, until } from './demo_page.mjs';

const [EXPLORING, TRAINING, IMAGES, PICTURES] = process.argv.slice(2);

/** What the table on the card of the share says, by name of the row. */
async function facts({ panel }) {
  const rows = panel.locator('.jp-gpu-Share-table tr');
  return Object.fromEntries(await rows.evaluateAll(all => all.map(({ cells }) => [cells[0].textContent, cells[1].textContent])));
}

/** Of "95 % of the GPU now, 50 % allocated": 95. */
const quota = ({ Quota }) => parseFloat(Quota);

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
  await until('the card tells of the share', async () => 'Quota' in (await facts(notebook)));
  return notebook;
}

/** Waits until the quota of a share is as `wanted` says, and the card tells of a change that way with its reason. */
async function adjusted(name, notebook, wanted, more) {
  const said = await until(`the quota of ${name} is as it should be, with a reason`, async () => {
    const all = await notebook.panel.locator('.jp-gpu-Share-adjustments li').allInnerTexts();
    return wanted(quota(await facts(notebook))) && all.find(text => {
      const [, from, to] = text.match(/([\d.]+) % → ([\d.]+) %: \S/) ?? [];
      return to > 0 && Number(to) > Number(from) === more;
    });
  });
  say(`${name}: quota ${quota(await facts(notebook))} %. ${said}`);
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
  assert.equal(quota(low), 50, 'who works has its own half');
  await Promise.all([exploring.picture('exploring'), training.picture('training')]);
  await exploring.ended(cell, 60_000);
  say((await exploring.cell(cell)).text.trim());
}

/** The pictures of the documentation: both pages side by side in the middle of a burst, in both themes. */
async function takePictures(context, exploring, training) {
  const both = [exploring, training];
  for (const notebook of both) {
    await notebook.hideFiles();
    await notebook.panel.locator('.jp-gpu-Share summary').click();
    await notebook.page.setViewportSize({ width: 800, height: 960 });
    await notebook.panel.locator('.jp-gpu-Card').evaluate(card => card.scrollIntoView({ block: 'end' }));
  }
  await exploring.scrollTo(await exploring.find('work(0.5)'));
  await training.scrollTo(await training.find('seconds ='));
  for (const [name, theme] of THEMES) {
    await Promise.all(both.map(notebook => notebook.theme(theme)));
    await exploring.page.waitForTimeout(5_000);
    await exploring.run('work(0.5)');
    await rested(exploring);
    const cell = await exploring.find('work(4)');
    await exploring.start(cell);
    await until('half of the bank is spent', async () => saved(await facts(exploring)) < 0.5);
    const shots = await Promise.all(both.map(notebook => notebook.page.screenshot()));
    await beside(context, shots, `sharing-${name}`);
    await exploring.ended(cell, 60_000);
  }
}

/** One picture of several, from left to right. */
async function beside(context, shots, name) {
  const page = await context.newPage();
  const images = shots.map(shot => `<img width="50%" src="data:image/png;base64,${shot.toString('base64')}">`);
  await page.setViewportSize({ width: 1610, height: 960 });
  await page.setContent(`<body style="margin: 0; display: flex; gap: 10px; background: gray">${images.join('')}`);
  await page.screenshot({ path: `${IMAGES}/${name}.png` });
  await page.close();
}

await inBrowser(IMAGES, async context => {
  const training = await open(context, TRAINING, 'gpu.resize(0.05)');
  const exploring = await open(context, EXPLORING, 'gpu.resize(0.5)');
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
