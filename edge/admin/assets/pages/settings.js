// What is configured, and where that comes from; listeners and certificates.

import { api } from '../client.js'
import { h, put, table, toast } from '../dom.js'
import { short, time } from '../format.js'

export default async function settings (main, { may, isHere }) {
  const body = h('div', { class: 'grid' })
  const reload = h('button', {
    onclick: async () => {
      try {
        const { changed, needs_restart: later } = await api.post('/config/reload')
        toast(`Read again. ${changed.length > 0 ? `In force: ${changed.join(', ')}.` : 'Nothing has changed.'}${later.length > 0 ? ` A restart is due for ${later.join(', ')}.` : ''}`)
        await load()
      } catch (problem) { toast(problem.message, true) }
    }
  }, 'Read files again')
  put(main, h('div', { class: 'head' }, h('h1', {}, 'Configuration'), may('config:write') && reload), body)

  async function edit (setting) {
    const input = h('input', { value: JSON.stringify(setting.value), 'aria-label': setting.name, spellcheck: 'false' })
    const dialog = h('dialog', {}, h('form', { method: 'dialog' },
      h('h2', {}, setting.name), input,
      h('p', { class: 'soft' }, 'As JSON. It goes before file and environment, and is kept with the records.'),
      h('div', { class: 'row' }, h('button', { class: 'primary', value: 'set' }, 'Put in force'),
        setting.origin === 'api' && h('button', { value: 'back' }, 'Take back'), h('button', { value: '' }, 'Leave it'))))
    dialog.addEventListener('close', async () => {
      dialog.remove()
      if (!dialog.returnValue) return
      try {
        await api.patch('/config', { [setting.name]: dialog.returnValue === 'back' ? null : JSON.parse(input.value) })
        toast(`${setting.name} is in force.`)
        await load()
      } catch (problem) { toast(problem.message, true) }
    })
    document.body.append(dialog)
    dialog.showModal()
  }

  async function load () {
    const [{ settings }, { listeners }, { certificates }] = await Promise.all([
      api.get('/config'),
      may('stats:read') ? api.get('/listeners') : { listeners: [] },
      may('stats:read') ? api.get('/certificates') : { certificates: [] }
    ])
    if (!isHere()) return
    const sum = counts => Object.values(counts).reduce((all, one) => all + one, 0)
    put(body,
      h('section', { class: 'card span12' }, h('div', { class: 'top' }, h('h2', {}, 'Listeners')), table([
        ['Protocol', one => one.protocol],
        ['Address', one => h('span', { class: 'mono' }, one.address)],
        ['Torrents', one => one.mode],
        ['Requests', one => short(sum(one.traffic.requests)), 'num'],
        ['Open', one => short(one.traffic.connections_open), 'num']
      ], listeners, 'Listeners')),
      certificates.length > 0 && h('section', { class: 'card span12' }, h('div', { class: 'top' }, h('h2', {}, 'Certificates')), table([
        ['Host', one => one.name || '–'], ['Ends', one => time(one.expires)]
      ], certificates, 'Certificates')),
      h('section', { class: 'card span12' }, h('div', { class: 'top' }, h('h2', {}, 'Keys of the configuration'), h('span', { class: 'soft' }, 'Those with a button can change while serving.')), table([
        ['Key', one => h('span', { class: 'mono' }, one.name)],
        ['Value', one => h('span', { class: 'mono' }, JSON.stringify(one.value))],
        ['From', one => h('span', { class: one.origin === 'default' ? 'soft' : 'tag' }, one.origin), 'wide'],
        ['', one => one.reloadable && may('config:write') && h('button', { class: 'small', onclick: () => edit(one) }, 'Change'), 'actions']
      ], settings, 'Settings')))
  }
  await load()
}
