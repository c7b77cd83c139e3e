// Nodes: no cluster; and what a node sees during a partition, which a test of the API has written.

import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'

export default async function (dashboard) {
  const { page, has, click, visit, text } = dashboard
  const paths = (await dashboard.pages()).map(([path]) => path)
  assert.ok(paths.includes('torrents') && !paths.includes('nodes'), `a single tracker has no nodes: ${paths}`)
  await visit('nodes', 'Nodes')
  await page.until(has('not part of a cluster'), 'what a cluster is')
  const partition = JSON.parse(readFileSync(new URL('../partition.json', import.meta.url)))
  // The page asks for the status first.
  const status = await (await dashboard.call('GET', '/status')).json()
  const { state, summary } = partition
  await page.answer('*/api/v1/status*', () => ({ ...status, cluster: { state, summary } }))
  const posts = []
  await page.answer('*/api/v1/cluster*', request => {
    if (request.method === 'POST') posts.push(new URL(request.url).pathname)
    return partition
  })
  await visit('torrents', 'Torrents')
  await visit('nodes', 'Nodes')
  await page.until(has('None of the 2 other nodes is heard'), 'what is wrong')
  assert.equal(await text('h1 + .tag.bad'), 'not stored')
  const cells = row => page.value(`[...document.querySelectorAll('tbody')[0].rows[${row}].cells].map(cell => cell.innerText)`)
  const [own, gone, , left, ignored] = await Promise.all([0, 1, 2, 3, 4].map(cells))
  assert.deepEqual(own.slice(0, 4), ['1', 'this node', 'eu-1', '1.2.3'])
  assert.deepEqual([gone[1], gone[5], gone[7], gone[13]], ['gone, 31 s', '–', '31 s', 'Ignore'])
  assert.deepEqual([left[1], left[7]], ['left, 30 min', ''])
  assert.deepEqual([ignored[1], ignored[13]], ['ignored', 'Heed'])
  for (const words of ['no leader', 'secret', 'node 2 has been silent for 10 s', '630 blocks']) {
    assert.ok(await page.value(has(words)), words)
  }
  await click('Heed')
  await page.until(has('Node 5 is heard again'), 'node 5 to be heard')
  await click('Ignore')
  await page.until(has('Ignore node 4?'), 'the question')
  await click('Ignore')
  await page.until(has('Node 4 is ignored'), 'node 4 to be ignored')
  assert.deepEqual(posts, ['nodes/5/heed', 'nodes/4/ignore'].map(path => `/api/v1/cluster/${path}`))
  // All is well again: the page says so without a reload.
  Object.assign(partition, { state: 'linked', summary: 'All nodes are heard.', problems: [] })
  await page.until('document.querySelector("h1 + .tag.good")', 'the end of the partition')
  assert.ok(!await page.value(has('None of the 2')))
  await page.stopAnswering()
}
