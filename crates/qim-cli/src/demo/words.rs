//! Everyday words, the common ones first.

/// How a language is written here.
#[derive(Debug)]
pub(crate) struct Language {
    /// How often it is spoken, beside the others.
    pub(crate) share: u64,
    pub(crate) space: &'static str,
    pub(crate) stop: &'static str,
    pub(crate) question: &'static str,
    /// Between white space.
    pub(crate) words: &'static str,
}

/// All of them.
pub(crate) const LANGUAGES: [Language; 8] = [
    Language {
        share: 55,
        space: " ",
        stop: ". ",
        question: "? ",
        words: "the to a I and it is that of you in for this on be have we not but with so if are can was \
                just at what there do will think would about some when like good time one more out get know \
                see how maybe also then should today tomorrow morning evening lunch coffee train station \
                weather rain garden kitchen window table bread market river bridge meeting file draft \
                version button page list number question answer ticket parcel bicycle weekend holiday \
                mountain library lamp blanket yesterday recipe calendar keyboard printer umbrella platform \
                neighbourhood appointment temperature documentation understand available together",
    },
    Language {
        share: 10,
        space: " ",
        stop: ". ",
        question: "? ",
        words: "ich und die das ist nicht du der zu es wir in auch ein mit auf so noch aber hab mal schon \
                dann wenn heute morgen gut für über später können müssen Straße Bahnhof Frühstück Küche \
                Brücke Termin Fahrrad Wochenende Wetter Regen Garten Fenster Besprechung Entwurf vielleicht \
                natürlich gestern Bücherei Kaffee Nachmittag Zwischenzeit Haltestelle",
    },
    Language {
        share: 8,
        space: " ",
        stop: ". ",
        question: "? ",
        words: "que de o a e não eu é um para com está mas se uma no já bem aqui hoje amanhã agora também \
                muito então você tem vou manhã tarde café pão reunião estação chuva praia cozinha janela \
                mercado ônibus bicicleta versão página pergunta resposta ontem depois coração amanhecer \
                informação disponível",
    },
    Language {
        share: 12,
        space: "",
        stop: "。",
        question: "？",
        words: "的 我 是 了 不 你 在 有 这 好 就 们 吗 那 要 会 吧 今天 明天 现在 可以 一下 什么 没有 知道 \
                觉得 时间 已经 晚上 早上 会议 文件 天气 下雨 咖啡 火车 车站 厨房 窗户 市场 自行车 周末 \
                版本 问题 图书馆 一起吃饭 没关系 差不多 放在桌上 刚刚看到",
    },
    Language {
        share: 6,
        space: " ",
        stop: ". ",
        question: "? ",
        words: "и я не в что на это ты с а но как да уже есть так мы ещё сегодня завтра хорошо можно потом \
                сейчас утром вечером кофе поезд вокзал погода дождь кухня окно рынок встреча вопрос ответ \
                вчера велосипед выходные библиотека расписание",
    },
    Language {
        share: 4,
        space: "",
        stop: "。",
        question: "？",
        words: "の は に を が で と も です ます した から ので 今日 明日 今 ちょっと ありがとう 時間 駅 \
                電車 天気 雨 朝 夜 コーヒー 会議 資料 台所 窓 自転車 週末 質問 たぶん もう一度 図書館 \
                大丈夫",
    },
    Language {
        share: 3,
        space: " ",
        stop: ". ",
        question: "؟ ",
        words: "في من على أنا لا ما هذا إلى مع هل نعم اليوم غدا الآن جيد صباح مساء قهوة قطار محطة مطر مطبخ \
                نافذة سوق سؤال جواب مكتبة أمس دراجة اجتماع",
    },
    Language {
        share: 2,
        space: " ",
        stop: "। ",
        question: "? ",
        words: "है में और का नहीं मैं यह से को हम आज कल अभी अच्छा समय सुबह शाम चाय बारिश खिड़की बाज़ार सवाल \
                जवाब साइकिल पुस्तकालय बैठक",
    },
];
