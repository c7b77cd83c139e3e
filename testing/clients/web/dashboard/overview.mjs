// Overview: the status strip, live figures, charts with their values for keyboard and screen readers, time ranges.

import assert from 'node:assert/strict'

export default async function (dashboard) {
  const { page, has, click, visit, text, call, announce, tracker } = dashboard
  assert.equal(await page.value('document.cookie'), '', 'the cookie must not be visible to scripts')

  // What the API says is wrong, is what the page says; names come from the API, too.
  const status = await (await call('GET', '/status')).json()
  await page.until(`document.querySelector('.status').dataset.level === '${status.level}'`, 'the level')
  for (const { text: what, remedy } of status.health) {
    // Commands are set as code.
    for (const words of [what, remedy ?? '']) assert.ok(await page.value(has(words.replaceAll('`', ''))), words)
  }
  assert.ok(await page.value(has(status.version)))
  await page.value('for (const more of document.querySelectorAll(".status details")) more.open = true')
  for (const { url } of status.announce_urls) assert.ok(await page.value(has(url)), url)
  assert.ok(await page.value(`document.querySelector('button[aria-label="Copy ${status.announce_urls[0].url}"]') != null`))

  // URLs break between their parts only: each part is one box.
  const boxes = '[...document.querySelectorAll(".urls .unbroken")].map(one => one.getClientRects().length)'
  for (const [width, height, isPhone] of [[390, 844, true], [1280, 800, false]]) {
    await page.size(width, height, isPhone)
    const all = await page.value(boxes)
    assert.ok(all.length >= 6 && all.every(count => count === 1), `${width}: ${all}`)
  }
  // Listeners of one protocol are together, and the usual engine is not worth a word.
  const chips = await page.value('[...document.querySelectorAll(".listeners .chip")].map(one => one.innerText)')
  const udp = status.listeners.filter(one => one.protocol === 'udp')
  assert.ok(chips[0].startsWith('UDP') && udp.every(one => chips[0].includes(one.address)), String(chips))
  assert.ok(chips.some(chip => chip.startsWith('HTTP, WS')), String(chips))
  assert.ok(!/mmsg/.test(String(chips)), String(chips))

  // Live figures: a torrent is added while the page is open, and a request is refused.
  await announce(1, 0)
  await announce(2, 5)
  await fetch(`http://${tracker}/announce?info_hash=short`)
  const figure = number => `document.querySelectorAll('.stat .value')[${number}].innerText`
  await page.until(`${figure(2)} === '2'`, 'peers to be counted')
  await page.until(`${figure(3)} === '1'`, 'the torrent to be counted')
  await page.until(has('1 seeder, 1 leecher'), 'the singular')

  // Charts: each has a name, and values that arrow keys move through. All show the same moment.
  await page.until('document.querySelectorAll(".chart canvas").length >= 8', 'charts')
  const slider = number => `document.querySelectorAll('.chart [role=slider]')[${number}]`
  await page.until(`Number(${slider(0)}.getAttribute('aria-valuemax')) >= 2`, 'values')
  assert.match(await page.value(`${slider(0)}.getAttribute('aria-label')`), /^Requests/)
  await page.value(`${slider(0)}.focus()`)
  await page.press('ArrowLeft', 37)
  assert.match(await page.value(`${slider(0)}.getAttribute('aria-valuetext')`), /^\d\d:\d\d:\d\d: .*UDP/)
  const times = await page.value('[...document.querySelectorAll(".chart .legend time")].map(one => one.textContent)')
  assert.equal(times.length, 8, 'all charts show the moment of the cursor')
  assert.equal(new Set(times).size, 1, String(times))
  await page.press('Escape', 27)
  await page.until('document.querySelectorAll(".chart .legend time").length === 0', 'the cursor to go')

  // Every range, every scale, and the same figures as a table.
  const names = await (await call('GET', '/names')).json()
  for (const { title } of names.spans.toReversed()) {
    await click(title)
    await page.until(`[...document.querySelectorAll('.choice button')].find(one => one.textContent === '${title}').getAttribute('aria-pressed') === 'true'`, title)
  }
  for (const title of ['Logarithmic', 'Cut off spikes', 'Linear']) await click(title)
  await click('Table')
  await page.until('document.querySelectorAll(".figures tbody tr").length > 0', 'rows')
  assert.ok(await page.value('document.querySelector(".figures thead").innerText.includes("Response time: p50")'))
  await click('Charts')
  await page.until('document.querySelectorAll(".chart canvas").length >= 8', 'charts')

  // The start is annotated, and a reload will be.
  await page.until(has('Started tidegate'), 'the start among what happened')
  await call('POST', '/config/reload')
  await page.until(has('Reloaded'), 'the reload among what happened')

  // A tracker that hangs keeps its connections, and the page says that it is silent.
  const pid = Number(process.env.TIDEGATE_PID)
  process.kill(pid, 'SIGSTOP')
  await page.until(has('Nothing has been heard since'), 'that the tracker is silent')
  process.kill(pid, 'SIGCONT')
  await page.until(`!${has('Nothing has been heard since')}`, 'that it is heard again')

  // A refusal has a plain name.
  const { title } = names.refusals.find(({ name }) => name === 'info_hash_malformed')
  await visit('torrents', 'Torrents')
  await visit('overview', 'Overview')
  await page.until(has(title), 'the refusal by its name')
  assert.equal(await text('h1'), 'Overview')
  await budgets(dashboard)
}

/** What a browser loads for the first page, and when it paints it first: printed, the size checked. */
async function budgets ({ page, url }) {
  assert.deepEqual(await page.value('violations'), [])
  await page.send('Network.setCacheDisabled', { cacheDisabled: true })
  let bytes = 0
  page.listen((method, params) => { if (method === 'Network.loadingFinished') bytes += params.encodedDataLength })
  await page.go(url)
  await page.until('document.querySelectorAll(".chart canvas").length >= 8', 'charts')
  await page.until('performance.getEntriesByName("first-contentful-paint").length > 0', 'the first paint')
  const paint = await page.value('performance.getEntriesByName("first-contentful-paint")[0].startTime')
  console.log(`${bytes} bytes until the charts are drawn; first paint after ${Math.round(paint)} ms`)
  assert.ok(bytes > 30_000 && bytes <= 120_000, `${bytes} bytes`)
  await page.send('Network.setCacheDisabled', { cacheDisabled: false })
}
